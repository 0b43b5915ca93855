/*
 * The fault plan: which faults a "fault:..." device injects.
 *
 * A plan is a text, given in rmr_device_options.fault_plan or, failing that, in the environment
 * variable REMORA_FAULT_PLAN: "seed=7,delay_us=200,reorder=1,tear=1". Without either, and for "",
 * the plan is "seed=1": no faults at all.
 *
 *	seed=N			 all choices come from it (default 1)
 *	delay_us=N		 completions are held back for 0..N us
 *	delay_percent=P		 ... this share of them (default 100)
 *	reorder=1		 completions come out in any order that the contract allows
 *	tear=1, tear_percent=P	 READs are done in pieces, at different moments, in any order
 *	tear_us=N		 ... with up to N us between them (default 20)
 *	drop_at=N		 each connection is lost at its N-th operation
 *	drop_ppm=N		 an operation in a million / N loses its connection
 *	drop_limit=N		 ... but no more than N connections of the device in all
 *	refuse_region=N		 the N-th registration of the device fails (RMR_NO_MEMORY)
 *	refuse_region_percent=P	 this share of them fails
 *	refuse_connect=N	 the N-th rmr_connect of the device fails (RMR_REFUSED)
 *	refuse_connect_percent=P this share of them fails
 *	stall_percent=P		 this share of posts takes fewer works than there is room for
 *	stall_us=N		 ... and as few as possible for 0..N us after it
 *	offload=1		 no fault: says that it has RMR_CAP_OFFLOAD, so that programs go the
 *				 ways that they go on an adapter
 *
 * Parsing is strict: a plan that is misspelt, says a thing twice or has a part without effect is
 * refused, because a test that injects nothing passes too easily.
 */
#ifndef FABRIC_FAULT_PLAN_H
#define FABRIC_FAULT_PLAN_H

#include <stdint.h>

#include <remora/status.h>

struct fault_plan {
	uint64_t seed;
	uint64_t delay_us, delay_percent;
	uint64_t reorder;
	uint64_t tear, tear_percent, tear_us; /* tear is in tear_percent already */
	uint64_t drop_at, drop_ppm, drop_limit;
	uint64_t refuse_region, refuse_region_percent;
	uint64_t refuse_connect, refuse_connect_percent;
	uint64_t stall_percent, stall_us;
	uint64_t offload;
};

/* Reads a plan; NULL is "". RMR_INVALID names what is wrong, and the keys that there are. */
RMR_MUST_CHECK enum rmr_status fault_plan_parse(const char *text, struct fault_plan *plan);

#endif
