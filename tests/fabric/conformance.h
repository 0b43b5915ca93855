/*
 * The tables of the suite, one a file, each ended by an entry without a name.
 */
#ifndef TESTS_FABRIC_CONFORMANCE_H
#define TESTS_FABRIC_CONFORMANCE_H

#include "fixture.h"

extern const struct test access_tests[];
extern const struct test atomic_tests[];
extern const struct test close_tests[];
extern const struct test connect_tests[];
extern const struct test death_tests[];
extern const struct test descriptor_tests[];
extern const struct test flow_tests[];
extern const struct test leak_tests[];
extern const struct test limit_tests[];
extern const struct test load_tests[];
extern const struct test many_tests[];
extern const struct test memory_tests[];
extern const struct test message_tests[];
extern const struct test order_tests[];
extern const struct test stranger_tests[];
extern const struct test transfer_tests[];
extern const struct test wait_tests[];

#endif
