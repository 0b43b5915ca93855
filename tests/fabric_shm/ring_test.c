/*
 * The message ring by itself: one writer, one reader, in one process step by step, and in two
 * processes at full speed. Each message carries its number and a pattern made from it, so a byte
 * that is old, torn or of another message is seen.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "fabric/shm/segment.h"
#include "harness/test.h"

#define LONGEST (3 * RING_CELLS * 64) /* longer than the ring */

/* Both ends' shared memory; inherited by fork. */
static struct shm_segment *shared(void)
{
	void *memory = mmap(NULL, 2 * sizeof(struct shm_segment), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static struct ring_writer writer_of(struct shm_segment *ends)
{
	return (struct ring_writer){.cells = ends[0].ring, .reader_head = &ends[1].head};
}

static struct ring_reader reader_of(struct shm_segment *ends)
{
	return (struct ring_reader){.cells = ends[0].ring, .my_head = &ends[1].head};
}

static uint8_t pattern(uint64_t number, size_t at)
{
	return (uint8_t)((number * 0x9e3779b97f4a7c15u >> 32) + at * 7);
}

static void fill(uint8_t *data, size_t length, uint64_t number)
{
	for (size_t i = 0; i < length; i++)
		data[i] = pattern(number, i);
}

/* The length of a message is a function of its number: mostly small, now and then huge. */
static size_t length_of(uint64_t number)
{
	uint64_t hash = (number + 1) * 0xbf58476d1ce4e5b9u;

	hash ^= hash >> 31;
	if (hash % 64 == 0)
		return hash / 64 % LONGEST;
	return hash % 4 == 0 ? hash / 64 % 4096 : hash / 64 % 100;
}

struct assembly {
	uint8_t *data;
	size_t filled;
	uint64_t number;
};

/* Takes one fragment; checks it. False when there is none. */
static bool take(struct ring_reader *reader, struct assembly *assembly)
{
	struct ring_item item = {0};
	int found = ring_reader_peek(reader, &item);
	size_t length = length_of(assembly->number);

	if (found < 0)
		TEST_FAIL("no fragment at %llu", (unsigned long long)reader->head);
	if (found == 0)
		return false;
	CHECK_EQ(item.kind, RING_MESSAGE);
	CHECK_EQ(!!(item.flags & RING_FIRST), assembly->filled == 0);
	CHECK_EQ(item.extra, length);
	CHECK(item.length <= length - assembly->filled);
	for (size_t i = 0; i < item.length; i++) {
		if (item.payload[i] != pattern(assembly->number, assembly->filled + i))
			TEST_FAIL("message %llu: wrong byte at %zu",
				  (unsigned long long)assembly->number, assembly->filled + i);
	}
	assembly->filled += item.length;
	if (item.flags & RING_LAST) {
		CHECK_EQ(assembly->filled, length);
		assembly->number++;
		assembly->filled = 0;
	}
	ring_reader_advance(reader, &item);
	return true;
}

static void test_step_by_step(void)
{
	struct shm_segment *ends = shared();
	struct ring_writer writer = writer_of(ends);
	struct ring_reader reader = reader_of(ends);
	struct assembly assembly = {0};
	uint8_t *data = malloc(LONGEST);
	struct test_rng rng;
	size_t sent = 0;
	bool started = false;

	test_rng_init(&rng, 1);
	for (uint64_t number = 0; number < 20000;) {
		if (test_rng_below(&rng, 2)) {
			fill(data, length_of(number), number);
			if (ring_write_message(&writer, data, length_of(number), &sent, &started)) {
				number++;
				sent = 0;
				started = false;
			}
		} else {
			for (uint64_t n = test_rng_below(&rng, 8); n > 0; n--)
				take(&reader, &assembly);
		}
	}
	while (take(&reader, &assembly))
		;
	CHECK_EQ(assembly.number, 20000);
	free(data);
}

static void test_full_ring(void)
{
	struct shm_segment *ends = shared();
	struct ring_writer writer = writer_of(ends);
	struct ring_reader reader = reader_of(ends);
	struct ring_item item = {0};
	uint32_t count = 0;

	/* One cell always stays free: its word is the 0 that stops the reader. */
	while (ring_write_immediate(&writer, count, count))
		count++;
	CHECK_EQ(count, RING_CELLS - 1);
	for (uint32_t i = 0; i < count; i++) {
		CHECK_EQ(ring_reader_peek(&reader, &item), 1);
		CHECK_EQ(item.extra, i);
		ring_reader_advance(&reader, &item);
	}
	CHECK_EQ(ring_reader_peek(&reader, &item), 0);
	CHECK(ring_write_immediate(&writer, 1, 1));
}

/* A reader that consumed everything lets a writer that wants a quarter go on, though it tells only
 * now and then how far it is. */
static void test_a_quarter_is_always_had(void)
{
	struct shm_segment *ends = shared();
	struct ring_writer writer = writer_of(ends);
	struct ring_reader reader = reader_of(ends);
	struct ring_item item = {0};

	for (uint32_t n = 0; n < 10 * RING_CELLS; n++) {
		CHECK(ring_writer_room(&writer, RING_FRAGMENT) >= RING_FRAGMENT);
		CHECK(ring_write_immediate(&writer, n, 0));
		CHECK_EQ(ring_reader_peek(&reader, &item), 1);
		ring_reader_advance(&reader, &item);
	}
}

#define RACE_MESSAGES (TEST_HAS_SANITIZER ? 50000u : 400000u)

static void race_writer(void *context)
{
	struct ring_writer writer = writer_of(context);
	uint8_t *data = malloc(LONGEST);

	for (uint64_t number = 0; number < RACE_MESSAGES; number++) {
		size_t sent = 0;
		bool started = false;

		fill(data, length_of(number), number);
		while (!ring_write_message(&writer, data, length_of(number), &sent, &started))
			cpu_relax();
	}
	free(data);
}

static void test_two_processes(void)
{
	struct shm_segment *ends = shared();
	struct ring_reader reader = reader_of(ends);
	struct assembly assembly = {0};
	pid_t pid = test_spawn(race_writer, ends);

	while (assembly.number < RACE_MESSAGES) {
		if (!take(&reader, &assembly))
			cpu_relax();
	}
	test_wait(pid);
}

/* A writer with a bug: it publishes the word before the bytes. */
static void hasty_writer(void *context)
{
	struct shm_segment *ends = context;
	struct ring_writer writer = writer_of(ends);
	uint8_t *data = malloc(LONGEST);

	for (uint64_t number = 0;; number++) {
		size_t length = 40; /* always one cell */
		struct ring_cell *cell = &ends[0].ring[writer.tail % RING_CELLS];

		fill(data, length, number);
		while (ring_writer_room(&writer, 1) == 0)
			cpu_relax();
		atomic_store(&ends[0].ring[(writer.tail + 1) % RING_CELLS].word, 0);
		cell->extra = length;
		atomic_store(&cell->word,
			     RING_MESSAGE | (RING_FIRST | RING_LAST) << 8 | (uint64_t)length << 32);
		memcpy(cell->payload, data, length);
		writer.tail++;
	}
}

/* The check that the race test relies on does see that bug. */
static void test_a_planted_bug_is_seen(void)
{
	struct shm_segment *ends = shared();
	struct ring_reader reader = reader_of(ends);
	uint64_t deadline = clock_deadline_ns(20000), number = 0;
	pid_t pid = test_spawn(hasty_writer, ends);
	struct ring_item item = {0};
	bool seen = false;

	while (!seen && !clock_passed(deadline)) {
		if (ring_reader_peek(&reader, &item) != 1)
			continue;
		for (size_t i = 0; i < item.length; i++)
			seen |= item.payload[i] != pattern(number, i);
		number++;
		ring_reader_advance(&reader, &item);
	}
	test_kill(pid);
	CHECK(seen);
}

static const struct test tests[] = {
	{"step_by_step", test_step_by_step},
	{"full_ring", test_full_ring},
	{"a_quarter_is_always_had", test_a_quarter_is_always_had},
	{"two_processes", test_two_processes},
	{"a_planted_bug_is_seen", test_a_planted_bug_is_seen},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_ring", tests, TEST_COUNT(tests));
}
