/*
 * Sizes and durations as people write them.
 *
 * Sizes: a number, then a unit: B, K, KB, KiB, M, MB, MiB, G, GB, GiB, T, TB, TiB, in any case.
 * KB and KiB both mean 1024 bytes: memory is counted in powers of two here, and nobody has to
 * remember which tool means what. A number alone is bytes. Fractions are fine when they come out
 * as whole bytes: 1.5GiB.
 *
 * Durations: a number, then ns, us, ms, s, m or min, h. A number alone is seconds.
 *
 * Pure functions, any thread. A text that is not understood, negative or too large gives
 * RMR_INVALID with a message that shows what would be right.
 */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <remora/status.h>
#include <stdint.h>

/* Enough for every result of size_format() and duration_format(). */
#define SIZE_TEXT_LENGTH 32

RMR_MUST_CHECK enum rmr_status size_parse(const char *text, uint64_t *bytes);
RMR_MUST_CHECK enum rmr_status duration_parse(const char *text, uint64_t *duration_ns);

/* Writes the shortest exact form with a unit, which size_parse() reads back to the same number:
 * "512", "64KiB", "1GiB". Returns `text`. */
const char *size_format(uint64_t bytes, char text[SIZE_TEXT_LENGTH]);

/* The same for durations: "10s", "250ms", "1500us". */
const char *duration_format(uint64_t duration_ns, char text[SIZE_TEXT_LENGTH]);

#endif
