/*
 * Items: the checksum notices every changed bit, and whatever bytes are claimed to be an item are
 * looked at within their bounds only.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "store/item.h"
#include "store/size_class.h"

#define OFFSET	((uint64_t)0x123458)
#define VERSION ((uint64_t)77)
#define EXPIRY	((uint64_t)0x123456789abc)

/* An item of its own piece of memory, so that the address sanitizer sees where it ends. */
static struct item *make(size_t key_length, uint64_t value_length, unsigned kind, uint64_t expiry)
{
	uint64_t size = item_size(key_length, value_length);
	struct item *item = aligned_alloc(64, (size + 63) / 64 * 64);
	uint8_t key[STORE_MAX_KEY];

	CHECK(item);
	memset(item, 0xee, size);
	for (size_t i = 0; i < key_length; i++)
		key[i] = (uint8_t)(i * 7 + 1);
	item->version = 0;
	item_write_key(item, key, key_length, value_length, kind);
	for (uint64_t i = 0; i < value_length; i++)
		item_value(item)[i] = (uint8_t)(i * 13 + 5);
	item_publish(item, OFFSET, VERSION, expiry, item_body_hash(item), false);
	return item;
}

static void test_fields(void)
{
	static const struct {
		size_t key_length;
		uint64_t value_length;
		unsigned kind;
	} shapes[] = {{1, 0, ITEM_VALUE},    {7, 9, ITEM_VALUE},       {8, 8, ITEM_COUNTER},
		      {4096, 0, ITEM_VALUE}, {4096, 5000, ITEM_VALUE}, {3, 4095, ITEM_VALUE},
		      {3, 4096, ITEM_VALUE}, {33, 100000, ITEM_VALUE}};

	for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
		struct item *item =
			make(shapes[i].key_length, shapes[i].value_length, shapes[i].kind, EXPIRY);
		uint64_t lengths = item_get_lengths(item);
		uint64_t size = item_size_of(lengths);
		size_t value_at = (size_t)(item_value(item) - (uint8_t *)item);

		CHECK_EQ(item_key_length(lengths), shapes[i].key_length);
		CHECK_EQ(item_value_length(lengths), shapes[i].value_length);
		CHECK_EQ(item_kind(lengths), shapes[i].kind);
		CHECK_EQ(item_version(item), VERSION);
		CHECK_EQ(item_expiry(item), EXPIRY);
		CHECK_EQ(item_pins(item), 0);
		CHECK(value_at >= sizeof(*item) + shapes[i].key_length);
		CHECK_EQ(value_at % (shapes[i].value_length >= ITEM_WIDE ? ITEM_WIDE_ALIGN : 8), 0);
		CHECK_EQ(value_at + shapes[i].value_length, size);
		for (size_t j = sizeof(*item) + shapes[i].key_length; j < value_at; j++)
			CHECK_EQ(((uint8_t *)item)[j], 0);
		CHECK(item_is_complete(item, OFFSET, size));
		CHECK(item_is_complete(item, OFFSET, UINT64_MAX));
		CHECK(!item_is_complete(item, OFFSET, size - 1));
		free(item);
	}
}

/* The bits of the expiry word that are the store's own. */
static bool is_own_bit(size_t bit)
{
	return bit >= offsetof(struct item, expiry) * 8 + 48 &&
	       bit < offsetof(struct item, expiry) * 8 + 64;
}

static void flip_each_bit(size_t key_length, uint64_t value_length, unsigned kind)
{
	struct item *item = make(key_length, value_length, kind, EXPIRY);
	uint64_t size = item_size(key_length, value_length);
	uint8_t *bytes = (uint8_t *)item;

	for (size_t bit = 0; bit < size * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (item_is_complete(item, OFFSET, size) != is_own_bit(bit))
			TEST_FAIL("bit %zu of an item of %lu bytes", bit, size);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	CHECK(item_is_complete(item, OFFSET, size));
	free(item);
}

static void test_flipped_bits(void)
{
	flip_each_bit(1, 0, ITEM_VALUE);
	flip_each_bit(3, 5, ITEM_VALUE);
	flip_each_bit(8, 8, ITEM_COUNTER);
	flip_each_bit(16, 64, ITEM_VALUE);
	flip_each_bit(100, 200, ITEM_VALUE);
	flip_each_bit(5, 4096, ITEM_VALUE);
}

/* A torn READ: some of the cache lines are those of another item at the same place. */
static void test_torn(void)
{
	struct item *old = make(10, 500, ITEM_VALUE, 0), *new = make(10, 500, ITEM_VALUE, 0);
	uint64_t size = item_size(10, 500);
	uint8_t *mixed = aligned_alloc(64, 640);

	CHECK(mixed && size <= 640 && size > 512);
	memset(item_value(new), 0x11, 500);
	item_publish(new, OFFSET, VERSION + 1, 0, item_body_hash(new), false);
	for (unsigned mask = 0; mask < 1u << 9; mask++) {
		for (unsigned line = 0; line < 9; line++) {
			const uint8_t *from = (const uint8_t *)(mask >> line & 1 ? new : old);
			size_t length = line == 8 ? size - 512 : 64;

			memcpy(mixed + 64 * (size_t)line, from + 64 * (size_t)line, length);
		}
		CHECK_EQ(item_is_complete((struct item *)mixed, OFFSET, size),
			 mask == 0 || mask == (1u << 9) - 1);
	}
	free(mixed);
	free(old);
	free(new);
}

/* The same bytes elsewhere are not the item. */
static void test_other_offset(void)
{
	struct item *item = make(12, 30, ITEM_VALUE, 0);
	uint64_t size = item_size(12, 30);

	for (unsigned bit = 3; bit < 43; bit++)
		CHECK(!item_is_complete(item, OFFSET ^ (uint64_t)1 << bit, size));
	CHECK(!item_is_complete(item, 0, size));
	CHECK(!item_is_complete(item, OFFSET + 64, size));
	CHECK(item_is_complete(item, OFFSET, size));
	free(item);
}

static void test_dead(void)
{
	struct item *item = make(12, 30, ITEM_VALUE, 0);
	uint64_t lengths = item_get_lengths(item);

	/* Not even if the checksum is right. */
	item->version = 0;
	item->checksum = item_checksum(OFFSET, 0, 0, lengths, item_body_hash(item));
	CHECK(!item_is_complete(item, OFFSET, item_size_of(lengths)));
	free(item);
}

static void test_set_expiry(void)
{
	static const uint64_t expiries[] = {0, 1, 1000, EXPIRY, ITEM_EXPIRY_MASK, 5, 0, 0};
	struct item *item = make(20, 100, ITEM_VALUE, 12345);
	uint64_t size = item_size(20, 100);

	for (size_t i = 0; i < TEST_COUNT(expiries); i++) {
		uint64_t pins = i % 3;

		atomic_fetch_add(&item->expiry, pins * ITEM_PIN);
		item_set_expiry(item, OFFSET, expiries[i]);
		CHECK_EQ(item_expiry(item), expiries[i]);
		CHECK_EQ(item_pins(item), pins);
		CHECK_EQ(item_version(item), VERSION);
		CHECK(item_is_complete(item, OFFSET, size));
		CHECK_EQ(item->checksum,
			 item_checksum(OFFSET, VERSION, expiries[i], item_get_lengths(item),
				       item_body_hash(item)));
		atomic_fetch_sub(&item->expiry, pins * ITEM_PIN);
		CHECK(item_is_complete(item, OFFSET, size));
	}
	free(item);
}

/* All pins there can be, and death, leave the expiry alone. */
static void test_own_bits(void)
{
	struct item *item = make(20, 100, ITEM_VALUE, ITEM_EXPIRY_MASK);
	uint64_t size = item_size(20, 100);

	atomic_fetch_add(&item->expiry, ITEM_MAX_PINS * ITEM_PIN);
	CHECK_EQ(item_pins(item), ITEM_MAX_PINS);
	CHECK_EQ(item_expiry(item), ITEM_EXPIRY_MASK);
	CHECK(item_is_complete(item, OFFSET, size));
	atomic_fetch_or(&item->expiry, ITEM_DEAD);
	CHECK_EQ(item_pins(item), ITEM_MAX_PINS);
	CHECK_EQ(item_expiry(item), ITEM_EXPIRY_MASK);
	atomic_fetch_sub(&item->expiry, ITEM_MAX_PINS * ITEM_PIN);
	CHECK_EQ(item->expiry, ITEM_DEAD | ITEM_EXPIRY_MASK);
	free(item);
}

/* Lengths that no item has, with a checksum that would be right. */
static void test_wrong_lengths(void)
{
	static const struct {
		uint64_t key_length, value_length;
		unsigned kind;
	} wrong[] = {{0, 10, ITEM_VALUE},
		     {4097, 10, ITEM_VALUE},
		     {65535, 10, ITEM_VALUE},
		     {10, 10, 2},
		     {10, 10, 255},
		     {10, ITEM_MAX_VALUE, 0},
		     {4096, ITEM_MAX_VALUE, 0},
		     {10, 1 << 20, ITEM_VALUE}};
	size_t room = 80000;
	struct item *item = aligned_alloc(64, room);

	CHECK(item);
	memset(item, 0x55, room);
	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		uint64_t lengths =
			item_lengths(wrong[i].key_length, wrong[i].value_length, wrong[i].kind);

		item->lengths = lengths;
		item->expiry = 0;
		item->version = VERSION;
		/* The body of what is too long cannot be summed up. */
		item->checksum =
			item_checksum(OFFSET, VERSION, 0, lengths,
				      item_size_of(lengths) <= room ? item_body_hash(item) : 0);
		CHECK(!item_is_complete(item, OFFSET, room));
	}
	free(item);
}

/* Any bytes, any room: an answer, and no look beyond the room. */
static void test_garbage(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (int i = 0; i < 300000; i++) {
		uint64_t room = sizeof(struct item) + 8 * test_rng_below(&rng, 64);
		uint8_t *bytes = malloc(room);
		struct item *item = (struct item *)bytes;

		CHECK(bytes);
		test_rng_fill(&rng, bytes, room);
		/* Mostly lengths that nearly fit. */
		if (i % 4)
			item->lengths = item_lengths(test_rng_below(&rng, room),
						     test_rng_below(&rng, room), i % 3 == 0);
		CHECK(!item_is_complete(item, OFFSET, room));
		free(bytes);
	}
}

static void test_slots(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (int i = 0; i < 100000; i++) {
		uint64_t hash = test_rng_next(&rng);
		uint64_t offset = test_rng_next(&rng) % STORE_MAX_SIZE & ~(uint64_t)7;
		unsigned class = (unsigned)test_rng_below(&rng, SIZE_CLASS_COUNT);
		uint64_t slot = slot_make(hash_tag(hash), class, offset);
		uint64_t header = bucket_header((uint32_t)hash, offset % MAX_OVERFLOW_COUNT,
						(unsigned)(hash % MAX_DEPTH));

		CHECK_EQ(slot_tag(slot), hash >> 48);
		CHECK_EQ(slot_class(slot), class);
		CHECK_EQ(slot_offset(slot), offset);
		CHECK_EQ(bucket_sequence(header), hash & ((1u << 29) - 1));
		CHECK_EQ(bucket_overflow(header), offset % MAX_OVERFLOW_COUNT);
		CHECK_EQ(bucket_depth(header), hash % MAX_DEPTH);
		CHECK(!bucket_is_locked(header));
		CHECK(bucket_is_locked(header | BUCKET_LOCKED));
	}
}

static const struct test tests[] = {
	{"fields", test_fields},
	{"flipped_bits", test_flipped_bits},
	{"torn", test_torn},
	{"another_offset", test_other_offset},
	{"dead", test_dead},
	{"set_expiry", test_set_expiry},
	{"the_stores_own_bits", test_own_bits},
	{"wrong_lengths", test_wrong_lengths},
	{"garbage", test_garbage},
	{"slots_and_headers", test_slots},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "item", tests, TEST_COUNT(tests));
}
