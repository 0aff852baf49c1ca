#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image.
set -e
apt-get update
apt-get install -y g++ python3 python3-venv
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "gpureduce needs Python 3.11: choose a newer base image" >&2
    exit 1
fi
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install --find-links /autograder/source gpureduce=={{version}}
