/* Rig: see rig.h. Everything is as large as the test needs before it starts; nothing grows. */
#include "rig.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "store/layout.h"

/* What an item may need beside its place: of the index, the page table and the heat. */
#define ITEM_SHARE  28u
#define SPARE_BYTES ((size_t)16 << 20)

enum rmr_status perf_pin(const struct perf_config *config, unsigned index)
{
	cpu_set_t set;
	int cpu;

	if (!config->cpu_count)
		return RMR_OK;
	cpu = config->cpus[index % (unsigned)config->cpu_count];
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return error_errno(RMR_INVALID, errno, "pin to core %d", cpu);
	return RMR_OK;
}

enum rmr_status rig_memory(const struct perf_config *config, size_t size, struct rmr_arena **arena)
{
	unsigned flags = RMR_ARENA_PREFAULT | (config->huge ? RMR_ARENA_HUGE : 0);
	char text[SIZE_TEXT_LENGTH];

	return error_context(rmr_arena_open(size, flags, arena), "memory of %s",
			     size_format(size, text));
}

size_t rig_size_for(const struct perf_config *config, uint64_t keys)
{
	uint64_t item = item_size(config->key_size, config->value_size);

	if (config->memory)
		return config->memory;
	return keys * (size_class_size(size_class_of(item)) + ITEM_SHARE) + SPARE_BYTES;
}

enum rmr_status rig_open(struct rig *rig, const struct perf_config *config, size_t size,
			 enum store_on_full on_full)
{
	struct store_options options = {.size = size, .on_full = on_full};
	char text[SIZE_TEXT_LENGTH];
	enum rmr_status status;

	*rig = (struct rig){0};
	status = rig_memory(config, size, &rig->arena);
	if (status != RMR_OK)
		return status;
	options.memory = rmr_arena_base(rig->arena);
	status = store_create(&options, &rig->store);
	if (status == RMR_OK)
		status = store_worker_open(rig->store, &rig->worker);
	if (status != RMR_OK)
		rig_close(rig);
	return error_context(status, "a store of %s", size_format(size, text));
}

void rig_close(struct rig *rig)
{
	if (rig->worker)
		store_worker_close(rig->worker);
	store_destroy(rig->store);
	rmr_arena_close(rig->arena);
	*rig = (struct rig){0};
}

enum rmr_status rig_failed(enum store_status status, const char *operation, uint64_t number)
{
	const char *advice = status == STORE_NO_MEMORY ? "; --memory gives it more" : "";

	return error_set(RMR_SYSTEM, "%s of key number %llu: %s%s", operation,
			 (unsigned long long)number, store_status_text(status), advice);
}

static enum rmr_status fill_block(struct rig *rig, const struct perf_config *config,
				  const struct block *block, size_t count, uint8_t *value)
{
	for (size_t i = 0; i < count; i++) {
		struct store_put put = {
			.key = block_key(block, i),
			.key_length = config->key_size,
			.value = value,
			.value_length = config->value_size,
		};
		enum store_status status;

		value_number(value, block->numbers[i]);
		status = store_put(rig->worker, &put, NULL);
		if (status != STORE_OK)
			return rig_failed(status, "put", block->numbers[i]);
	}
	return RMR_OK;
}

enum rmr_status rig_fill(struct rig *rig, const struct perf_config *config, uint64_t first,
			 uint64_t end)
{
	static struct block block;
	uint8_t *value = malloc(config->value_size);
	enum rmr_status status = RMR_OK;

	if (!value)
		return error_set(RMR_NO_MEMORY, "a value");
	block.key_size = config->key_size;
	value_prepare(value, config->value_size);
	while (status == RMR_OK && first < end) {
		size_t count = end - first < BLOCK_KEYS ? end - first : BLOCK_KEYS;

		block_in_order(&block, first, count);
		status = fill_block(rig, config, &block, count, value);
		first += count;
	}
	free(value);
	return status;
}

enum rmr_status rig_check(struct rig *rig)
{
	char why[256];

	if (!store_is_valid(rig->store, why, sizeof(why)))
		return error_set(RMR_SYSTEM, "the store is broken after the test: %s", why);
	return RMR_OK;
}
