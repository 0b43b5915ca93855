/*
 * List: an intrusive, circular, doubly linked list.
 *
 * The link lives inside the object, so that linking allocates nothing, and an object can leave its
 * list in O(1) knowing nothing but itself. The same struct is head and link:
 *
 *	struct conn { struct list link; ... };
 *	struct list conns;
 *
 *	list_init(&conns);
 *	list_add_tail(&conns, &conn->link);
 *	list_for_each (at, &conns) {
 *		struct conn *conn = list_entry(at, struct conn, link);
 *	}
 *
 * A link that is in no list points at itself: list_init() makes it so, list_remove() restores it,
 * and so removing twice is harmless. No locking: whoever owns the list guards it.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next;
	struct list *prev;
};

static inline void list_init(struct list *list)
{
	list->next = list;
	list->prev = list;
}

/* True for an empty list, and for a link that is in no list. */
static inline bool list_is_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_insert_between(struct list *link, struct list *prev, struct list *next)
{
	link->prev = prev;
	link->next = next;
	prev->next = link;
	next->prev = link;
}

/* Adds `link`, which must be in no list, as the first. */
static inline void list_add(struct list *head, struct list *link)
{
	list_insert_between(link, head, head->next);
}

/* Adds `link`, which must be in no list, as the last. */
static inline void list_add_tail(struct list *head, struct list *link)
{
	list_insert_between(link, head->prev, head);
}

static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* Adds all of one list behind what is in the other. */
static inline void list_move_all(struct list *from, struct list *to)
{
	while (!list_is_empty(from)) {
		struct list *link = from->next;

		list_remove(link);
		list_add_tail(to, link);
	}
}

/* The object that contains the link `pointer` as its member `member`. */
#define list_entry(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* The first object of a list that is not empty. */
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)

/* Visits each link. The body must not remove `at`; list_for_each_safe() permits that. */
#define list_for_each(at, head) for (struct list *at = (head)->next; at != (head); at = at->next)

/* Visits each link; the body may remove and free the one it is given. */
#define list_for_each_safe(at, head)                                                               \
	for (struct list *at = (head)->next, *at##_next = at->next; at != (head);                  \
	     at = at##_next, at##_next = at->next)

#endif
