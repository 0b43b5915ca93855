/*
 * Slabs: what <remora/mesh.h> says of them, against a model, and between threads.
 *
 * What these tests would catch: items that overlap, leave their partition or are given twice; a
 * slab that does not come back; a double free, or a pointer that is none, that is believed; a byte
 * written into the memory; a lock forgotten.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "rdma/mesh/slabs_internal.h"

#define KIB (1ul << 10)
#define MIB (1ul << 20)

static char *get_memory(size_t size)
{
	char *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);

	CHECK(memory != NULL);
	memset(memory, 0xa5, size);
	return memory;
}

/* Nothing was ever written by the manager itself. */
static void check_untouched(const char *memory, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)memory[i] != 0xa5)
			TEST_FAIL("byte %zu was written", i);
}

static void test_arguments(void)
{
	struct rmr_slabs *slabs;
	char *memory = get_memory(MIB);

	CHECK_STATUS(rmr_slabs_open(NULL, MIB, 1, 64 * KIB, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 0, 64 * KIB, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 1025, 64 * KIB, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 1, 2048, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 1, 65 * KIB, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 1, 2 * MIB, &slabs), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_open(memory, MIB, 3, 512 * KIB, &slabs), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "not one slab");
	CHECK_OK(rmr_slabs_open(memory, MIB, 16, 64 * KIB, &slabs));
	CHECK_EQ(rmr_slabs_class(slabs, 0, 0), RMR_INVALID);
	CHECK_EQ(rmr_slabs_class(slabs, 16, 1), RMR_INVALID);
	CHECK_EQ(rmr_slabs_class(slabs, 0, 64 * KIB + 1), RMR_TOO_LONG);
	CHECK_EQ(rmr_slabs_class(slabs, 15, 1), 0);
	CHECK_EQ(rmr_slabs_item_size(slabs, -1), 0);
	CHECK_EQ(rmr_slabs_item_size(slabs, 10000), 0);
	CHECK(rmr_slabs_alloc(slabs, 16, 0) == NULL);
	CHECK(rmr_slabs_alloc(slabs, 0, -1) == NULL);
	CHECK(rmr_slabs_alloc(slabs, 0, 10000) == NULL);
	rmr_slabs_close(slabs);
	rmr_slabs_close(NULL);
	check_untouched(memory, MIB);
	free(memory);
}

/* From 64 bytes to the slab, each at most an eighth (or one step of 64) larger; the one that is
 * found is the smallest that is large enough. */
static void test_classes(void)
{
	char *memory = get_memory(MIB);
	struct rmr_slabs *slabs;
	size_t before = 0, size;
	int count = 0;

	CHECK_OK(rmr_slabs_open(memory, MIB, 1, MIB, &slabs));
	while ((size = rmr_slabs_item_size(slabs, count)) != 0) {
		CHECK_EQ(size % 64, 0);
		CHECK(size > before);
		CHECK(before == 0 || size <= before + before / 8 + 64);
		CHECK_EQ(rmr_slabs_class(slabs, 0, size), count);
		CHECK_EQ(rmr_slabs_class(slabs, 0, before + 1), count);
		before = size;
		count++;
	}
	CHECK_EQ(rmr_slabs_item_size(slabs, 0), 64);
	CHECK_EQ(before, MIB);
	CHECK(count > 60 && count < 120);
	rmr_slabs_close(slabs);
	free(memory);
}

/* All that fits can be had, nothing overlaps, and all of it can be had again in another class. */
static void test_exhaustion(void)
{
	size_t size = MIB + 1000; /* the rest is not used */
	char *memory = get_memory(size);
	static const size_t sizes[] = {64, 100, 4000, 33000, 64 * KIB};
	struct rmr_slabs_stats stats;
	struct rmr_slabs *slabs;
	char **items = calloc(MIB / 64 + 1, sizeof(*items)); /* and the NULL at the end */

	CHECK(items != NULL);
	CHECK_OK(rmr_slabs_open(memory, size, 1, 64 * KIB, &slabs));
	for (size_t round = 0; round < TEST_COUNT(sizes); round++) {
		int class = rmr_slabs_class(slabs, 0, sizes[round]);
		size_t item_size = rmr_slabs_item_size(slabs, class), count = 0;

		while ((items[count] = rmr_slabs_alloc(slabs, 0, class)) != NULL) {
			CHECK_EQ((uintptr_t)items[count] % 64, 0);
			CHECK(items[count] >= memory && items[count] + item_size <= memory + size);
			if (item_size > 64) /* by what is written into it each is told apart */
				memset(items[count], (int)count, item_size);
			count++;
		}
		CHECK_EQ(count, 16 * (64 * KIB / item_size));
		rmr_slabs_get_stats(slabs, &stats);
		CHECK_EQ(stats.slabs, 16);
		CHECK_EQ(stats.free_slabs, 0);
		CHECK_EQ(stats.items, count);
		CHECK_EQ(stats.item_bytes, count * item_size);
		CHECK(slabs_is_valid(slabs));
		while (count--) {
			for (size_t i = 0; item_size > 64 && i < item_size; i++)
				CHECK_EQ((uint8_t)items[count][i], (uint8_t)count);
			CHECK_OK(rmr_slabs_free(slabs, 0, items[count], class));
		}
		CHECK(slabs_is_valid(slabs));
	}
	rmr_slabs_get_stats(slabs, &stats);
	CHECK_EQ(stats.free_slabs, 16);
	CHECK_EQ(stats.items, 0);
	rmr_slabs_close(slabs);
	free(items);
	free(memory);
}

/* Whatever is no item in use is not freed, and nothing changes by it. */
static void test_wrong_frees(void)
{
	char *memory = get_memory(MIB), *a, *b, *other;
	struct rmr_slabs *slabs;
	int class;

	CHECK_OK(rmr_slabs_open(memory, MIB, 2, 64 * KIB, &slabs));
	class = rmr_slabs_class(slabs, 0, 200);
	a = rmr_slabs_alloc(slabs, 0, class);
	b = rmr_slabs_alloc(slabs, 0, class);
	other = rmr_slabs_alloc(slabs, 1, class);
	CHECK(a && b && other);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, NULL, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, memory - 64, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, memory + MIB, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a + 64, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a + 1, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a, class + 1), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 1, a, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 2, a, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a, -1), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, other, class), RMR_INVALID);
	/* One of a slab that was never taken, and one that was never given. */
	CHECK_STATUS(rmr_slabs_free(slabs, 0, memory + 128 * KIB, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, b + (b - a), class), RMR_INVALID);
	CHECK_OK(rmr_slabs_free(slabs, 0, a, class));
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a, class), RMR_INVALID);
	CHECK_OK(rmr_slabs_free(slabs, 0, b, class));
	CHECK_STATUS(rmr_slabs_free(slabs, 0, b, class), RMR_INVALID);
	CHECK_STATUS(rmr_slabs_free(slabs, 0, a, class), RMR_INVALID);
	CHECK(slabs_is_valid(slabs));
	CHECK_OK(rmr_slabs_free(slabs, 1, other, class));
	rmr_slabs_close(slabs);
	check_untouched(memory, MIB);
	free(memory);
}

/* ------------------------------------------------------------------------------------------
 * Against a model: each 64 bytes of the memory know which item has them.
 */
#define MODEL_SIZE  (4 * MIB)
#define MODEL_ITEMS 20000
#define PARTITIONS  4u

struct item {
	char *at;
	int class;
	unsigned partition;
};

struct model {
	char *memory;
	struct rmr_slabs *slabs;
	uint32_t owner[MODEL_SIZE / 64]; /* item + 1 */
	struct item items[MODEL_ITEMS];
	size_t count;
};

static void mark(struct model *model, const struct item *item, uint32_t from, uint32_t to)
{
	size_t first = (size_t)(item->at - model->memory) / 64;
	size_t length = rmr_slabs_item_size(model->slabs, item->class) / 64;

	CHECK(item->at >= model->memory && first + length <= MODEL_SIZE / 64);
	CHECK_EQ(first / (MODEL_SIZE / 64 / PARTITIONS), item->partition);
	for (size_t i = 0; i < length; i++) {
		if (model->owner[first + i] != from)
			TEST_FAIL("%p has an item that has another one", (void *)item->at);
		model->owner[first + i] = to;
	}
}

static void model_alloc(struct model *model, struct test_rng *rng, size_t largest)
{
	struct item *item = &model->items[model->count];
	size_t size = 1 + test_rng_below(rng, largest);

	item->partition = (unsigned)test_rng_below(rng, PARTITIONS);
	item->class = rmr_slabs_class(model->slabs, item->partition, size);
	CHECK(item->class >= 0);
	CHECK(rmr_slabs_item_size(model->slabs, item->class) >= size);
	item->at = rmr_slabs_alloc(model->slabs, item->partition, item->class);
	if (!item->at)
		return;
	mark(model, item, 0, 1);
	model->count++;
}

static void model_free(struct model *model, struct test_rng *rng)
{
	size_t chosen = test_rng_below(rng, model->count);
	struct item *item = &model->items[chosen];

	mark(model, item, 1, 0);
	CHECK_OK(rmr_slabs_free(model->slabs, item->partition, item->at, item->class));
	if (test_rng_below(rng, 16) == 0)
		CHECK_STATUS(rmr_slabs_free(model->slabs, item->partition, item->at, item->class),
			     RMR_INVALID);
	*item = model->items[--model->count];
}

static void test_model(void)
{
	struct model *model = calloc(1, sizeof(*model));
	size_t operations = TEST_HAS_SANITIZER ? 300000 : 3000000;
	struct rmr_slabs_stats stats;
	struct test_rng rng;

	CHECK(model != NULL);
	test_rng_init(&rng, 1);
	model->memory = get_memory(MODEL_SIZE);
	CHECK_OK(rmr_slabs_open(model->memory, MODEL_SIZE, PARTITIONS, 16 * KIB, &model->slabs));
	for (size_t i = 0; i < operations; i++) {
		/* It fills and empties in turn, and the sizes that are asked for change. */
		bool grows = i / 30000 % 2 == 0;
		size_t largest = i / 60000 % 3 == 0 ? 16 * KIB : i / 60000 % 3 == 1 ? 1000 : 100;

		if (model->count == 0 ||
		    (model->count < MODEL_ITEMS && test_rng_below(&rng, 10) < (grows ? 7 : 3)))
			model_alloc(model, &rng, largest);
		else
			model_free(model, &rng);
		if (i % (operations / 50) == 0)
			CHECK(slabs_is_valid(model->slabs));
	}
	while (model->count)
		model_free(model, &rng);
	CHECK(slabs_is_valid(model->slabs));
	rmr_slabs_get_stats(model->slabs, &stats);
	CHECK_EQ(stats.free_slabs, stats.slabs);
	CHECK_EQ(stats.item_bytes, 0);
	rmr_slabs_close(model->slabs);
	check_untouched(model->memory, MODEL_SIZE);
	free(model->memory);
	free(model);
}

/* Memory that does not begin at 64, and partitions that do not end there: items still do. */
static void test_unaligned(void)
{
	char *memory = get_memory(MIB);
	struct rmr_slabs *slabs;

	CHECK_OK(rmr_slabs_open(memory + 3, MIB - 3, 7, 64 * KIB, &slabs));
	for (unsigned partition = 0; partition < 7; partition++) {
		char *item = rmr_slabs_alloc(slabs, partition, 0);

		CHECK(item != NULL);
		CHECK_EQ((uintptr_t)item % 64, 0);
		CHECK_OK(rmr_slabs_free(slabs, partition, item, 0));
	}
	rmr_slabs_close(slabs);
	free(memory);
}

/* ------------------------------------------------------------------------------------------
 * Threads
 */
#define THREADS	    4u
#define THREAD_HELD 200u

struct crew {
	struct rmr_slabs *slabs;
	bool is_shared; /* all in one partition */
	unsigned number;
};

static void *work(void *argument)
{
	const struct crew *crew = argument;
	char *held[THREAD_HELD] = {NULL};
	int classes[THREAD_HELD] = {0};
	unsigned partition = crew->is_shared ? 0 : crew->number;
	struct test_rng rng;

	test_rng_init(&rng, 10 + crew->number);
	for (int i = 0; i < (TEST_HAS_SANITIZER ? 20000 : 300000); i++) {
		size_t place = test_rng_below(&rng, THREAD_HELD);
		char *item = held[place];
		size_t size;

		if (item) {
			size = rmr_slabs_item_size(crew->slabs, classes[place]);
			/* Nobody else has it: what we wrote is still there. */
			CHECK_EQ(item[0], (char)crew->number);
			CHECK_EQ(item[size - 1], (char)place);
			CHECK_OK(rmr_slabs_free(crew->slabs, partition, item, classes[place]));
			held[place] = NULL;
			continue;
		}
		classes[place] =
			rmr_slabs_class(crew->slabs, partition, 1 + test_rng_below(&rng, 3000));
		item = rmr_slabs_alloc(crew->slabs, partition, classes[place]);
		if (!item)
			continue;
		size = rmr_slabs_item_size(crew->slabs, classes[place]);
		item[0] = (char)crew->number;
		item[size - 1] = (char)place;
		held[place] = item;
	}
	for (size_t place = 0; place < THREAD_HELD; place++)
		if (held[place])
			CHECK_OK(rmr_slabs_free(crew->slabs, partition, held[place],
						classes[place]));
	return NULL;
}

static void check_threads(bool is_shared)
{
	char *memory = get_memory(2 * MIB);
	struct rmr_slabs_stats stats;
	struct crew crews[THREADS];
	pthread_t threads[THREADS];
	struct rmr_slabs *slabs;

	CHECK_OK(rmr_slabs_open(memory, 2 * MIB, THREADS, 16 * KIB, &slabs));
	for (unsigned i = 0; i < THREADS; i++) {
		crews[i] = (struct crew){slabs, is_shared, i};
		CHECK_EQ(pthread_create(&threads[i], NULL, work, &crews[i]), 0);
	}
	for (int i = 0; i < 20; i++) {
		rmr_slabs_get_stats(slabs, &stats);
		CHECK(stats.free_slabs <= stats.slabs);
		CHECK(slabs_is_valid(slabs));
		test_sleep_ms(1);
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK(slabs_is_valid(slabs));
	rmr_slabs_get_stats(slabs, &stats);
	CHECK_EQ(stats.items, 0);
	CHECK_EQ(stats.free_slabs, stats.slabs);
	rmr_slabs_close(slabs);
	free(memory);
}

static void test_threads(void)
{
	check_threads(false);
	check_threads(true);
}

static const struct test tests[] = {
	{"slabs_arguments", test_arguments},
	{"slabs_classes", test_classes},
	{"slabs_exhaustion_and_return", test_exhaustion},
	{"slabs_wrong_frees", test_wrong_frees},
	{"slabs_model", test_model},
	{"slabs_unaligned", test_unaligned},
	{"slabs_threads", test_threads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "slabs_test", tests, TEST_COUNT(tests));
}
