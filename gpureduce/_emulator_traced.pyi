from gpureduce._emulator import *
