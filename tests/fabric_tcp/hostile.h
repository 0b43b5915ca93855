/* The tables of the hostile tests, one a file, each ended by an entry without a name. */
#ifndef TESTS_FABRIC_TCP_HOSTILE_H
#define TESTS_FABRIC_TCP_HOSTILE_H

#include "harness/test.h"

extern const struct test answer_tests[];
extern const struct test caller_tests[];

#endif
