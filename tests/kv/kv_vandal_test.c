/*
 * A client against a server whose memory changes while the client reads it.
 *
 * The server is played here. Its arena holds a real store, and a thread of its own, the vandal,
 * writes nonsense into it and mends it again, without end: into headers of items, buckets, the
 * directory and the header of the arena. Values may come out as anything. But no byte outside of
 * the caller's buffer may be written (the guard behind each says so), none outside of the arena
 * read (the sanitizer says so), and no call may hang.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/internal.h"
#include "harness/test.h"
#include "kv/protocol.h"
#include "remora/fabric.h"
#include "remora/kv.h"
#include "store/item.h"
#include "store/store.h"

#define ARENA	   ((size_t)8 << 20)
#define KEYS	   8u
#define SHORT	   100u
#define LONG	   40000u /* beyond a message, and hashed while it is copied */
#define RECV_SIZE  16384u
#define GUARD	   64u
#define SAID	   256u /* more than a window */
#define GUARD_BYTE 0xa5

/* A word that the vandal spoils. */
struct target_word {
	_Atomic uint64_t *word;
	uint64_t value;
};

struct stage {
	struct rmr_device *device;
	struct rmr_listener *listener;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct rmr_arena *messages; /* SAID of them, in turn */
	struct rmr_region *messages_region;
	unsigned said;
	struct rmr_remote *buffer; /* the client's */
	struct store *store;
	struct store_worker *worker;
	struct store_info items[KEYS]; /* the upper half is of long values */
	struct target_word words[512];
	unsigned word_count;
	struct item_header spoiled; /* with a wrong length, for the client's buffer */
	pthread_t player, vandal;
	atomic_bool stops;
};

static void key_of(unsigned number, char key[16])
{
	snprintf(key, 16, "some-key-%u", number);
}

static size_t length_of(unsigned number)
{
	return number < KEYS / 2 ? SHORT : LONG;
}

/* ------------------------------------------------------------------------------------------
 * The vandal
 */

static void add_words(struct stage *stage, uint64_t offset, unsigned count)
{
	_Atomic uint64_t *at = (void *)((uint8_t *)rmr_arena_base(stage->arena) + offset);

	for (unsigned i = 0; i < count && stage->word_count < TEST_COUNT(stage->words); i++)
		stage->words[stage->word_count++] =
			(struct target_word){.word = at + i, .value = atomic_load(at + i)};
}

static void choose_words(struct stage *stage)
{
	const struct store_header *header = rmr_arena_base(stage->arena);
	const uint32_t *directory =
		(const void *)((const uint8_t *)rmr_arena_base(stage->arena) + header->directory);

	for (unsigned i = 0; i < KEYS; i++)
		add_words(stage, stage->items[i].offset, sizeof(struct item) / 8 + 2);
	/* From the size on, which is behind magic and layout; without the tick. */
	add_words(stage, 16, 9);
	add_words(stage, offsetof(struct store_header, bucket_count), 3);
	add_words(stage, header->directory, 1);
	add_words(stage, header->overflow_directory, 1);
	add_words(stage, (uint64_t)directory[0] << STORE_PAGE_BITS, 8 * 16);
}

static uint64_t spoil(struct test_rng *rng, uint64_t value)
{
	switch (test_rng_below(rng, 4)) {
	case 0: /* as a header's lengths: the same key, another value */
		return (value & ~ITEM_MAX_VALUE) | test_rng_below(rng, 1 << 20);
	case 1:
		return value ^ (uint64_t)1 << test_rng_below(rng, 64);
	case 2:
		return value + ((uint64_t)1 << test_rng_below(rng, 48));
	default:
		return test_rng_next(rng);
	}
}

static void *vandalize(void *argument)
{
	struct stage *stage = argument;
	struct test_rng rng;

	test_rng_init(&rng, 19);
	while (!atomic_load_explicit(&stage->stops, memory_order_relaxed)) {
		struct target_word *target = &stage->words[test_rng_below(&rng, stage->word_count)];

		for (int i = 0; i < 20; i++) {
			atomic_store_explicit(target->word, spoil(&rng, target->value),
					      memory_order_relaxed);
			atomic_store_explicit(target->word, target->value, memory_order_relaxed);
		}
	}
	return NULL;
}

/* ------------------------------------------------------------------------------------------
 * The player
 */

static void say(struct stage *stage, const void *message, size_t length)
{
	uint8_t *at = (uint8_t *)rmr_arena_base(stage->messages) +
		      (size_t)(stage->said++ % SAID) * KV_MAX_GREETING;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.local = at,
				.length = length,
				.region = stage->messages_region};

	CHECK(length <= KV_MAX_GREETING);
	memcpy(at, message, length);
	(void)!rmr_post(stage->conn, &work, 1);
}

static void greet(struct stage *stage, unsigned op)
{
	struct kv_challenge challenge = {.op = KV_OP_CHALLENGE};
	struct kv_welcome welcome = {.op = KV_OP_WELCOME,
				     .capabilities = KV_CAN_READ,
				     .window = 64,
				     .cells_epoch = 1,
				     .eager_limit = KV_MIN_EAGER,
				     .instance = 1,
				     .max_value = 1 << 20,
				     .max_pins = 16};

	if (op == KV_OP_HELLO) {
		say(stage, &challenge, sizeof(challenge));
		return;
	}
	CHECK_OK(rmr_region_export(stage->region, stage->conn, &welcome.arena));
	say(stage, &welcome, sizeof(welcome));
}

/* Writes an item with another length to where the client reads items to. */
static void scribble(struct stage *stage)
{
	struct rmr_work work = {.op = RMR_OP_WRITE,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = &stage->spoiled,
				.length = sizeof(stage->spoiled),
				.remote = stage->buffer};

	if (stage->buffer)
		(void)!rmr_post(stage->conn, &work, 1);
}

static void answer_get(struct stage *stage, const struct kv_request_view *view,
		       struct kv_reply *reply)
{
	struct {
		struct kv_reply header;
		uint8_t value[SHORT];
	} message = {.header = *reply};
	unsigned number = view->key[view->header.key_length - 1] - '0';
	const struct store_info *info = &stage->items[number % KEYS];

	message.header.version = info->version;
	message.header.value_length = info->value_length;
	message.header.offset = info->offset;
	if (info->value_length > view->header.value_length ||
	    (info->value_length > SHORT && !(view->header.flags & KV_PUSH)))
		message.header.status = KV_BUFFER_TOO_SMALL;
	else if (info->value_length > SHORT)
		message.header.flags = KV_PUSHED;
	else
		message.header.flags = KV_HAS_VALUE;
	say(stage, &message,
	    message.header.flags & KV_HAS_VALUE ? sizeof(message) : sizeof(message.header));
}

static void answer(struct stage *stage, const struct rmr_completion *done)
{
	struct kv_request_view view;
	struct kv_reply reply = {.cells_epoch = 1, .cell = KV_NO_CELL};
	struct rmr_descriptor descriptor;

	if (*(const uint8_t *)done->data < KV_OP_GET) {
		greet(stage, *(const uint8_t *)done->data);
		return;
	}
	CHECK(!kv_decode_request(done->data, done->length, &view));
	reply.op = view.header.op;
	reply.id = view.header.id;
	if (view.header.op == KV_OP_GET) {
		answer_get(stage, &view, &reply);
	} else {
		if (view.header.op == KV_OP_PIN) {
			const struct store_info *info =
				&stage->items[(view.key[view.header.key_length - 1] - '0') % KEYS];

			reply.version = info->version;
			reply.value_length = info->value_length;
			reply.offset = info->offset;
		}
		if (view.header.op == KV_OP_BUFFER) {
			memcpy(&descriptor, view.value, sizeof(descriptor));
			CHECK_OK(rmr_remote_open(stage->conn, &descriptor, &stage->buffer));
		}
		say(stage, &reply, sizeof(reply));
	}
	scribble(stage);
}

static void *play(void *argument)
{
	struct stage *stage = argument;

	while (!atomic_load(&stage->stops)) {
		struct rmr_completion done;
		struct rmr_request *request;

		(void)store_tick(stage->worker, 1);
		if (!stage->conn) {
			if (rmr_listener_next(stage->listener, 20, &request) != RMR_OK)
				continue;
			CHECK_OK(rmr_accept(request, stage->queue, NULL, &stage->conn));
			stage->buffer = NULL;
		}
		if (rmr_wait(stage->queue, &done, 1, 5) != 1)
			continue;
		if (done.op == RMR_OP_DISCONNECT) {
			rmr_conn_close(stage->conn);
			stage->conn = NULL;
		}
		if (done.op != RMR_OP_RECV || done.status != RMR_OK)
			continue;
		answer(stage, &done);
		rmr_recv_release(stage->queue, done.data);
	}
	return NULL;
}

static void make_store(struct stage *stage)
{
	struct store_options options = {.memory = rmr_arena_base(stage->arena),
					.size = rmr_arena_size(stage->arena)};
	static uint8_t value[LONG];

	CHECK_OK(store_create(&options, &stage->store));
	CHECK_OK(store_worker_open(stage->store, &stage->worker));
	for (unsigned i = 0; i < KEYS; i++) {
		char key[16];
		struct store_put put = {.key = key, .value = value, .value_length = length_of(i)};

		key_of(i, key);
		put.key_length = strlen(key);
		CHECK_EQ(store_put(stage->worker, &put, &stage->items[i]), STORE_OK);
	}
	stage->spoiled =
		item_take_header((const struct item *)((uint8_t *)rmr_arena_base(stage->arena) +
						       stage->items[KEYS - 1].offset));
	stage->spoiled.lengths = item_lengths(strlen("some-key-0"), 1 << 24, ITEM_VALUE);
	choose_words(stage);
}

static kv_client_t *start(struct stage *stage, const char *device, kv_get_mode_t mode)
{
	struct rmr_queue_options queue_options = {.recv_slots = 64, .recv_size = RECV_SIZE};
	kv_client_options_t options = {.get_mode = mode, .device = device};
	bool is_shm = strcmp(device, "shm") == 0;
	char url[128], name[64];
	kv_client_t *client;

	if (TEST_HAS_TSAN)
		TEST_SKIP("what happens here is a race");
	*stage = (struct stage){0};
	CHECK_OK(rmr_device_open(device, NULL, &stage->device));
	CHECK_OK(rmr_queue_open(stage->device, &queue_options, &stage->queue));
	CHECK_OK(rmr_arena_open(ARENA, 0, &stage->arena));
	CHECK_OK(rmr_region_open(stage->device, rmr_arena_base(stage->arena),
				 rmr_arena_size(stage->arena), RMR_READ, &stage->region));
	CHECK_OK(rmr_arena_open((size_t)SAID * KV_MAX_GREETING, 0, &stage->messages));
	CHECK_OK(rmr_region_open(stage->device, rmr_arena_base(stage->messages),
				 rmr_arena_size(stage->messages), 0, &stage->messages_region));
	make_store(stage);
	snprintf(name, sizeof(name), "kv-vandal-%d", (int)getpid());
	CHECK_OK(rmr_listener_open(stage->device, is_shm ? name : "127.0.0.1:0", NULL,
				   &stage->listener));
	CHECK_EQ(pthread_create(&stage->player, NULL, play, stage), 0);
	if (is_shm)
		snprintf(url, sizeof(url), "shm:%s", name);
	else
		snprintf(url, sizeof(url), "%s", rmr_listener_address(stage->listener));
	client = kv_client_create_with(CONN_MODE_TCP, &options);
	CHECK(client);
	if (kv_client_connect(client, url, 0) != KV_OK)
		TEST_FAIL("%s: %s", url, kv_client_error(client));
	CHECK_EQ(pthread_create(&stage->vandal, NULL, vandalize, stage), 0);
	return client;
}

static void stop(struct stage *stage, kv_client_t *client)
{
	atomic_store(&stage->stops, true);
	pthread_join(stage->vandal, NULL);
	pthread_join(stage->player, NULL);
	kv_client_destroy(client);
	rmr_conn_close(stage->conn);
	rmr_listener_close(stage->listener);
	rmr_region_close(stage->region);
	rmr_region_close(stage->messages_region);
	rmr_queue_close(stage->queue);
	rmr_device_close(stage->device);
	store_worker_close(stage->worker);
	store_destroy(stage->store);
	rmr_arena_close(stage->messages);
	rmr_arena_close(stage->arena);
}

/* ------------------------------------------------------------------------------------------
 * What the client does
 */

/* A buffer of `room` bytes with a guard behind it. */
static uint8_t *make_room(size_t room)
{
	uint8_t *bytes = malloc(room + GUARD);

	CHECK(bytes);
	memset(bytes + room, GUARD_BYTE, GUARD);
	return bytes;
}

static void check_room(const uint8_t *bytes, size_t room)
{
	for (unsigned i = 0; i < GUARD; i++)
		CHECK_EQ(bytes[room + i], GUARD_BYTE);
}

static bool is_expected(int status)
{
	return status == KV_OK || status == KV_NOT_FOUND || status == KV_BUFFER_TOO_SMALL ||
	       status == KV_PROTOCOL;
}

static void get_one(kv_client_t *client, unsigned number)
{
	size_t room = length_of(number), length = room;
	uint8_t *bytes = make_room(room);
	char key[16];
	int status;

	key_of(number, key);
	status = kv_client_get(client, key, strlen(key), bytes, &length);
	if (!is_expected(status))
		TEST_FAIL("%s: %d: %s", key, status, kv_client_error(client));
	CHECK(status != KV_OK || length <= room);
	check_room(bytes, room);
	free(bytes);
}

static void get_allocated(kv_client_t *client, unsigned number)
{
	void *value = NULL;
	size_t length = 0;
	char key[16];
	int status;

	key_of(number, key);
	status = kv_client_get_alloc(client, key, strlen(key), &value, &length, NULL);
	if (!is_expected(status))
		TEST_FAIL("%s: %d: %s", key, status, kv_client_error(client));
	if (status == KV_OK)
		CHECK_EQ(((char *)value)[length], 0);
	kv_free(value);
}

static void get_many(kv_client_t *client, bool is_async)
{
	char texts[KEYS][16];
	const void *keys[KEYS];
	size_t key_lengths[KEYS], lengths[KEYS];
	void *values[KEYS];
	int statuses[KEYS] = {0};

	for (unsigned i = 0; i < KEYS; i++) {
		key_of(i, texts[i]);
		keys[i] = texts[i];
		key_lengths[i] = strlen(texts[i]);
		lengths[i] = length_of(i);
		values[i] = make_room(lengths[i]);
		if (is_async)
			CHECK_EQ(kv_client_submit_get(client, keys[i], key_lengths[i], values[i],
						      lengths[i], i),
				 KV_OK);
	}
	for (unsigned left = is_async ? KEYS : 0; left;) {
		kv_result_t results[KEYS];
		int count = kv_client_poll(client, results, (int)left, -1);

		CHECK(count > 0);
		for (int i = 0; i < count; i++)
			statuses[results[i].cookie] = results[i].status;
		left -= (unsigned)count;
	}
	if (!is_async)
		CHECK_EQ(kv_client_batch_get(client, KEYS, keys, key_lengths, values, lengths,
					     statuses),
			 KV_OK);
	for (unsigned i = 0; i < KEYS; i++) {
		if (!is_expected(statuses[i]))
			TEST_FAIL("%s: %d: %s", texts[i], statuses[i], kv_client_error(client));
		check_room(values[i], length_of(i));
		free(values[i]);
	}
}

/* A view's bytes may change, but they are there. */
static void look(kv_client_t *client, unsigned number)
{
	kv_view_t view;
	char key[16];
	unsigned sum = 0;

	key_of(number, key);
	CHECK_EQ(kv_client_view(client, key, strlen(key), &view), KV_OK);
	CHECK_EQ(view.length, length_of(number));
	for (size_t i = 0; i < view.length; i++)
		sum += ((const volatile uint8_t *)view.value)[i];
	(void)sum;
	kv_client_release(client, &view);
}

static void run(const char *device, kv_get_mode_t mode, unsigned rounds)
{
	struct stage stage;
	kv_client_t *client = start(&stage, device, mode);
	kv_client_totals_t totals;

	for (unsigned round = 0; round < rounds; round++) {
		unsigned number = round % KEYS;

		get_one(client, number);
		if (round % 4 == 0)
			get_allocated(client, number);
		if (round % 32 == 0) {
			get_many(client, false);
			get_many(client, true);
		}
		if (round % 32 == 1 && strcmp(device, "shm") == 0)
			look(client, number);
	}
	kv_client_get_totals(client, &totals);
	/* It was the path that it is about, and the connection held. */
	CHECK(totals.operations[strcmp(device, "shm") == 0 ? KV_PATH_MAPPED : KV_PATH_LOCATION] >
	      rounds / 20);
	CHECK_EQ(totals.reconnects, 0);
	stop(&stage, client);
}

static void test_mapped(void)
{
	run("shm", KV_GET_AUTO, 20000);
}

static void test_location(void)
{
	run("tcp", KV_GET_AUTO, 4000);
}

static void test_index(void)
{
	run("tcp", KV_GET_INDEX, 4000);
}

/* READs that come in parts, far apart. */
static void test_torn(void)
{
	CHECK_EQ(setenv("REMORA_FAULT_PLAN", "seed=7,tear=1", 1), 0);
	run("fault:tcp", KV_GET_AUTO, 1000);
}

/* ------------------------------------------------------------------------------------------
 * The client's own buffer, into which an adapter writes for the server at any moment.
 */

struct flipped {
	_Atomic uint64_t *lengths;
	uint64_t right, wrong;
	atomic_bool stops;
};

static void *flip(void *argument)
{
	struct flipped *flipped = argument;

	while (!atomic_load_explicit(&flipped->stops, memory_order_relaxed)) {
		atomic_store_explicit(flipped->lengths, flipped->wrong, memory_order_relaxed);
		atomic_store_explicit(flipped->lengths, flipped->right, memory_order_relaxed);
	}
	return NULL;
}

static void accept_flipping(size_t length)
{
	static const char key[] = "key";
	size_t size = item_size(3, length), accepted = 0, refused = 0;
	struct item *item = aligned_alloc(64, (size + 63) & ~(size_t)63);
	uint8_t *value = make_room(length);
	struct link link = {0};
	kv_client_t *client = kv_client_create(CONN_MODE_TCP);
	struct flipped flipped;
	pthread_t thread;

	CHECK(item && client);
	memset((void *)item, 0, size);
	item_write_key(item, key, 3, length, ITEM_VALUE);
	item_publish(item, 64, 5, 0, item_body_hash(item), false);
	flipped = (struct flipped){.lengths = &item->lengths,
				   .right = item_lengths(3, length, ITEM_VALUE),
				   .wrong = item_lengths(3, length + 4 * GUARD, ITEM_VALUE)};
	client->link = &link;
	CHECK_EQ(pthread_create(&thread, NULL, flip, &flipped), 0);
	/* Both have to occur, however the threads are scheduled. */
	for (int i = 0; i < 200000 || !accepted || !refused; i++) {
		struct call call = {.value = value, .room = length, .key = (const uint8_t *)key};

		call.request.key_length = 3;
		call.place = (struct location){.offset = 64, .size = (uint32_t)size};
		if (get_accept(client, &call, (const uint8_t *)item)) {
			accepted++;
			CHECK_EQ(call.status, KV_OK);
			CHECK_EQ(call.length, length);
		} else {
			refused++;
		}
		check_room(value, length);
	}
	atomic_store(&flipped.stops, true);
	pthread_join(thread, NULL);
	client->link = NULL;
	kv_client_destroy(client);
	free(value);
	free(item);
}

static void test_accept(void)
{
	accept_flipping(SHORT);
	accept_flipping(LONG);
}

static const struct test tests[] = {
	{"mapped", test_mapped, 0, 120},	 {"location", test_location, 0, 120},
	{"index", test_index, 0, 120},		 {"torn", test_torn, 0, 120},
	{"buffer_changes", test_accept, 0, 120},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_vandal_test", tests, TEST_COUNT(tests));
}
