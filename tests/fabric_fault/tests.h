/* The tests of fault_device_test.c, by file. */
#ifndef TESTS_FABRIC_FAULT_TESTS_H
#define TESTS_FABRIC_FAULT_TESTS_H

/* order.c */
void test_delays_are_honoured(void);
void test_waiting_sleeps(void);
void test_event_loop_is_woken(void);
void test_order_within_a_connection(void);
void test_sends_and_receives(void);
void test_reorder_between_connections(void);
void test_immediates_are_bounded(void);

/* tear.c */
void test_torn_reads_are_seen(void);
void test_torn_read_of_still_memory(void);
void test_torn_read_before_write(void);
void test_bad_read_is_not_torn(void);

/* loss.c */
void test_drop_at_write(void);
void test_drop_at_send(void);
void test_drop_keeps_what_arrived(void);
void test_drop_keeps_mappings(void);
void test_drop_while_posting(void);
void test_drop_limit(void);
void test_same_seed_same_losses(void);
void test_peer_killed(void);
void test_close_with_works_held_back(void);
void test_region_closed_under_a_waiting_work(void);

#endif
