/* Loading code: what is taken for it before, and what stays counted after. */
#pragma once
#include "images.h"

struct load {
    struct charge charge;
    struct image image;
    size_t free_bytes;
    uint64_t lost_bytes, least_bytes;
    int times;
};

enum { PLAIN = 1, PACKED = 2 }; /* `count` of a library that is only known: what its image is */

CUresult load_begin(struct load *load); /* any result but success: do not load */
void load_measure(struct load *load);   /* what the card lost since then */
CUresult load_end(struct load *load, CUresult result, enum ledger_kind kind, void *handle);
