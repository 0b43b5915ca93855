/*
 * Values that tell who put them. A value has its id at both ends, and between them a pattern that
 * depends on the id and the place; the id tells the length, too. No byte can be of another value
 * without being noticed. None is the text of a number, and none as short as one.
 */
#ifndef TESTS_LINEAR_VALUE_H
#define TESTS_LINEAR_VALUE_H

#include "harness/test.h"

#define VALUE_LONGEST 300000u
#define VALUE_NUMBER  20u /* a counter's text has no more bytes than this */

/* An id that no other process and no other serial has, of a random length. */
uint64_t value_make_id(uint32_t process, uint64_t serial, struct test_rng *rng);
size_t value_length(uint64_t id);
void value_fill(uint64_t id, void *value);

/* The id of a whole value; 0: it is broken, and *at is the first byte that is wrong. */
uint64_t value_parse(const void *value, size_t length, size_t *at);

#endif
