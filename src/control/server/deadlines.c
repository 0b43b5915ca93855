/*
 * Deadlines: calls that have one, as a binary heap by time. A call knows its place in it, so that
 * it can leave from anywhere.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "control/server/internal.h"

#define FIRST_ROOM 64u

static void put(struct deadlines *deadlines, size_t place, struct rpc *call)
{
	deadlines->heap[place] = call;
	call->heap_place = place + 1;
}

static void rise(struct deadlines *deadlines, size_t place, struct rpc *call)
{
	while (place > 0) {
		struct rpc *above = deadlines->heap[(place - 1) / 2];

		if (above->deadline_ns <= call->deadline_ns)
			break;
		put(deadlines, place, above);
		place = (place - 1) / 2;
	}
	put(deadlines, place, call);
}

static void sink(struct deadlines *deadlines, size_t place, struct rpc *call)
{
	for (;;) {
		size_t below = 2 * place + 1;

		if (below >= deadlines->count)
			break;
		if (below + 1 < deadlines->count &&
		    deadlines->heap[below + 1]->deadline_ns < deadlines->heap[below]->deadline_ns)
			below++;
		if (call->deadline_ns <= deadlines->heap[below]->deadline_ns)
			break;
		put(deadlines, place, deadlines->heap[below]);
		place = below;
	}
	put(deadlines, place, call);
}

bool deadlines_add(struct deadlines *deadlines, struct rpc *call)
{
	if (deadlines->count == deadlines->room) {
		size_t room = deadlines->room ? 2 * deadlines->room : FIRST_ROOM;
		struct rpc **heap = realloc(deadlines->heap, room * sizeof(*heap));

		if (!heap)
			return false;
		deadlines->heap = heap;
		deadlines->room = room;
	}
	rise(deadlines, deadlines->count++, call);
	return true;
}

void deadlines_remove(struct deadlines *deadlines, struct rpc *call)
{
	size_t place = call->heap_place;
	struct rpc *last;

	if (!place--)
		return;
	call->heap_place = 0;
	last = deadlines->heap[--deadlines->count];
	if (last == call)
		return;
	if (place > 0 && last->deadline_ns < deadlines->heap[(place - 1) / 2]->deadline_ns)
		rise(deadlines, place, last);
	else
		sink(deadlines, place, last);
}

struct rpc *deadlines_passed(const struct deadlines *deadlines, uint64_t now_ns)
{
	if (!deadlines->count || deadlines->heap[0]->deadline_ns > now_ns)
		return NULL;
	return deadlines->heap[0];
}

uint64_t deadlines_next_ns(const struct deadlines *deadlines)
{
	return deadlines->count ? deadlines->heap[0]->deadline_ns : CLOCK_NEVER;
}

void deadlines_fini(struct deadlines *deadlines)
{
	free(deadlines->heap);
	*deadlines = (struct deadlines){0};
}
