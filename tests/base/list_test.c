/* The list, against what an array would hold. */
#include "base/list.h"

#include <stdlib.h>

#include "harness/test.h"

static const int nothing[1];

struct item {
	int number;
	struct list link;
};

static void check_order(struct list *head, const int *expected, int count)
{
	struct list *back = head;
	int seen = 0;

	list_for_each (at, head) {
		CHECK(seen < count);
		CHECK_EQ(list_entry(at, struct item, link)->number, expected[seen]);
		CHECK(at->prev == back);
		back = at;
		seen++;
	}
	CHECK_EQ(seen, count);
	CHECK(head->prev == back);
}

static void test_add_remove(void)
{
	struct item items[4];
	struct list head;

	list_init(&head);
	CHECK(list_is_empty(&head));
	check_order(&head, nothing, 0);
	for (int i = 0; i < 4; i++) {
		items[i].number = i;
		list_init(&items[i].link);
	}
	list_add_tail(&head, &items[1].link);
	list_add_tail(&head, &items[2].link);
	list_add(&head, &items[0].link);
	list_add_tail(&head, &items[3].link);
	check_order(&head, (int[]){0, 1, 2, 3}, 4);
	CHECK(list_first_entry(&head, struct item, link) == &items[0]);

	list_remove(&items[2].link);
	check_order(&head, (int[]){0, 1, 3}, 3);
	CHECK(list_is_empty(&items[2].link));
	list_remove(&items[2].link); /* twice is harmless */
	check_order(&head, (int[]){0, 1, 3}, 3);

	list_remove(&items[0].link);
	list_remove(&items[3].link);
	list_remove(&items[1].link);
	CHECK(list_is_empty(&head));
	check_order(&head, nothing, 0);
}

static void test_free_while_walking(void)
{
	struct list head;
	int seen = 0;

	list_init(&head);
	for (int i = 0; i < 10; i++) {
		struct item *item = malloc(sizeof(*item));

		CHECK(item != NULL);
		item->number = i;
		list_add_tail(&head, &item->link);
	}
	list_for_each_safe (at, &head) {
		struct item *item = list_entry(at, struct item, link);

		CHECK_EQ(item->number, seen++);
		list_remove(at);
		free(item);
	}
	CHECK_EQ(seen, 10);
	CHECK(list_is_empty(&head));
}

static const struct test tests[] = {
	{"add_remove", test_add_remove},
	{"free_while_walking", test_free_while_walking},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "list_test", tests, TEST_COUNT(tests));
}
