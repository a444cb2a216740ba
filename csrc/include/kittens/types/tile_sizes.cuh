// What the numbers in names like rt_fl<16, 64> and st_bf<64, 64> count.
//
// <kittens.cuh>            elements: rt_fl<16, 64>. They stand in kittens::in_elements
// <kittens/classic.cuh>    base tiles of 16 × 16, as in the literature: rt_fl<1, 4>. They stand in
//                          kittens::classic
//
// The header that a translation unit includes first makes its own namespace an inline one, so that
// its names are those of `namespace kittens`. The names are of different entities, which stand for
// the same types, and no header of the tile layer uses them: so translation units of both kinds
// belong to one program, and what they share is the same in both.
#pragma once

#ifndef KITTENS_CLASSIC
#define KITTENS_CLASSIC 0
#endif

#if KITTENS_CLASSIC
#define KITTENS_IN_ELEMENTS namespace in_elements
#define KITTENS_IN_TILES inline namespace classic
#else
#define KITTENS_IN_ELEMENTS inline namespace in_elements
#define KITTENS_IN_TILES namespace classic
#endif
