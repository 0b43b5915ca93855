/*
 * Life: whether the server of a mapped arena is known to have lived a moment ago.
 *
 * Mapped memory stays readable after its server has died, and soon a successor may serve at the
 * same port. A reader must not answer from the old memory once the successor has accepted its first
 * client. The rule has two halves:
 *
 *	A reader returns what it copied only if, after the copy, it knows that the server was alive
 *	less than KV_SILENCE_MS before (life_covers).
 *	A server waits for KV_SUCCESSION_MS, which is longer, between the moment at which it owns
 *	its addresses and its first accept (server.c).
 *
 * Say that the old server died at D. It owned its addresses until then, so its successor accepts no
 * client before D + KV_SUCCESSION_MS. A reader's look at the clock came after its copy, and
 * before D + KV_SILENCE_MS. So the copy was complete before the successor's first client came,
 * and the get counts as made before all that the successor did.
 *
 * How a reader knows. `alive` is a time of its own clock after which the server did something:
 *
 *	- The housekeeper changes the arena's tick every 20 ms. If a look at the tick finds it
 *	  changed since the look before, the server lived at some moment after that one: alive is
 *	  the time of the look before. Looks are made every millisecond while gets are.
 *	- A reply proves that the server lived after the request was sent: alive is that time.
 *
 * No time of the server is compared with one of the reader's: their clocks need not agree, only run
 * at about the same speed. After a pause a reader's last look is old, and proves nothing: then it
 * asks, once, and the reply makes the mapped memory good again.
 *
 * The processor may carry out rdtsc, which waits for nothing, some instructions early or late. All
 * instructions between which it can change places are in flight at once; that is at most a few
 * microseconds, whatever they wait for, since interrupts, faults and everything else that takes
 * long empty the pipeline. The difference between both limits is 20 ms, so no fence is needed,
 * which would keep the processor from beginning the next get while this one waits for memory.
 */
#include "client/internal.h"

/* How often a mapped client looks whether the server is still there. */
#define CHECK_INTERVAL_US 1000

void life_init(struct kv_client *client)
{
	client->check_interval = (uint64_t)(clock_ticks_per_us() * CHECK_INTERVAL_US);
	client->silence = (uint64_t)(clock_ticks_per_us() * KV_SILENCE_MS * 1000);
}

/* Looks at the tick. */
static void look(struct link *link, uint64_t now)
{
	uint64_t tick = reader_tick(&link->reader);

	if (tick != link->tick_seen)
		life_note(link, link->looked_ticks);
	link->tick_seen = tick;
	link->looked_ticks = now;
}

/* Decides whether mapped memory can be trusted, and until when. */
static void judge(struct kv_client *client, uint64_t now)
{
	struct link *link = client->link;
	uint64_t silent = now - link->alive_ticks;

	client->is_silent = silent >= client->silence;
	client->reader =
		client->is_silent || link->is_lost || client->options.get_mode == KV_GET_ASK
			? NULL
			: &link->reader;
	client->check_ticks = now;
	client->check_span = client->check_interval;
	/* Nothing is good for any time while the server is silent. */
	if (client->is_silent)
		client->check_span = 0;
	else if (client->silence - silent < client->check_span)
		client->check_span = client->silence - silent;
}

void life_begin(struct kv_client *client)
{
	struct link *link = client->link;
	uint64_t now = clock_ticks();

	client->is_silent = false;
	client->reader = NULL;
	client->check_ticks = now;
	client->check_span = client->check_interval;
	if (!link->is_mapped)
		return;
	link->tick_seen = reader_tick(&link->reader);
	link->looked_ticks = now;
	judge(client, now);
}

/* Tells what was read lately, if nothing else was sent for long. */
static void tell_touches(struct kv_client *client)
{
	if (client->touch_count >= KV_MAX_TOUCHES)
		client_report(client, false);
}

bool life_check(struct kv_client *client)
{
	uint64_t now;

	if (fork_is_foreign(client->process)) {
		client->reader = NULL;
		client->check_span = 0;
		return false;
	}
	client->checks++;
	call_turn(client, 0);
	/* Before the look at the tick: what changes after that changes after this time. */
	now = clock_ticks();
	client->check_ticks = now;
	client->check_span = client->check_interval;
	if (!client->link || !client->link->is_mapped)
		return false;
	look(client->link, now);
	judge(client, now);
	if (client->reader)
		tell_touches(client);
	return client->reader != NULL;
}

bool life_is_heard(struct kv_client *client)
{
	if (clock_ticks() - client->check_ticks >= client->check_span)
		life_check(client);
	return client->link && !client->link->is_lost &&
	       !(client->link->is_mapped && client->is_silent);
}

int life_prove(struct kv_client *client, uint64_t generation)
{
	struct call *call;
	int status;

	if (client->link && client->generation == generation && life_covers(client))
		return KV_OK;
	if (!client->link || client->generation != generation)
		return KV_AGAIN;
	status = call_begin(client, KV_OP_PING, NULL, 0, true, &call);
	if (status != KV_OK)
		return status;
	call->path = KV_PATH_NONE;
	status = call_finish(client, call, NULL);
	if (status != KV_OK)
		return status;
	/* It may have been answered by another server. */
	return client->link && client->generation == generation ? KV_OK : KV_AGAIN;
}
