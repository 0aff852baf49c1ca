/* Finishes sums in integers, one group at a time: slow, but always right. */
#pragma once

#include "exact/finish.h"
#include "exact/products.h"

/* The sums of one group. */
typedef struct {
    gr_products first[GR_FINISH_SUMS], second[GR_FINISH_SUMS];
    double n, mean;
} gr_finish_sums;

/* Rounds the result once and stores it. */
void gr_finish_in_integers(const gr_finish_how *how, gr_finish_sums *of, unsigned char *out);
