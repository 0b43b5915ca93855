/*
 * Reading and writing a peer's memory.
 *
 * A region can be closed at any moment by its owner, who then expects that nobody touches the
 * memory any more. There is no hardware here that would wait for accesses under way, so both sides
 * follow this protocol (Dekker's):
 *
 *	initiator				owner
 *	active = 1				key = 0
 *	if key is not mine: stop		wait until active is 0, for each peer
 *	access					  that the region was exported to
 *	active = 0
 *
 * The first two steps of each side are sequentially consistent: at least one side sees the other's
 * store. Either the initiator sees that the key is gone and does nothing, or the owner sees that an
 * access is under way and waits for its end. Large transfers are made in pieces, each with this
 * protocol, so that the wait is short. A peer that does not leave in time was stopped in the
 * middle, or is hostile: it is waited for once, and then loses its connection. The owner waits
 * without the device's lock, so that nothing else of the device waits with it; and who cannot wait
 * at all asks again and again (rmr_region_revoke).
 *
 * The initiator's own memory is guarded the same way: a work may find its region closed by another
 * thread, which waits for our `active` as well. That one always ends, so it has no limit.
 *
 * The last store is sequentially consistent too after a WRITE: the data must have left the store
 * buffer before the completion says that it is placed. (An atomic instruction has seen to that.)
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/shm/internal.h"

#define QUIESCE_LIMIT_MS 100
#define SPINS		 64 /* looks at a peer before we give it the processor, and again so many */
#define NAP_NS		 100000		   /* between further looks */
#define PIECE		 ((size_t)1 << 20) /* moved between two looks at the key */

static bool may(const struct shm_remote *remote, const struct rmr_work *work)
{
	static const unsigned needed[] = {
		[RMR_OP_WRITE] = RMR_WRITE,	 [RMR_OP_WRITE_IMM] = RMR_WRITE,
		[RMR_OP_READ] = RMR_READ,	 [RMR_OP_COMPARE_SWAP] = RMR_ATOMIC,
		[RMR_OP_FETCH_ADD] = RMR_ATOMIC,
	};

	return (remote->base.rights & needed[work->op]) && work->offset <= remote->base.length &&
	       work->length <= remote->base.length - work->offset;
}

/* An aligned word is moved as one: an owner that reads a counter while it is written sees the old
 * or the new one. Nothing promises it to the peers, but nothing is gained by tearing it. */
static void copy(void *to, const void *from, size_t length)
{
	if (length == 8 && ((uintptr_t)to | (uintptr_t)from) % 8 == 0) {
		uint64_t word = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);

		__atomic_store_n((uint64_t *)to, word, __ATOMIC_RELAXED);
		return;
	}
	if (length > 0)
		memcpy(to, from, length);
}

/* What is moved at a time: a part of a READ or WRITE. */
struct piece {
	bool reading;
	uint64_t offset; /* in the remote region */
	uint8_t *local;	 /* target of a READ, source of a WRITE */
	size_t length;
};

static void access_atomic(const struct shm_remote *remote, const struct rmr_work *work)
{
	uint64_t *word = (uint64_t *)(void *)(remote->memory + work->offset);
	uint64_t old;

	if (work->op == RMR_OP_COMPARE_SWAP) {
		old = work->compare;
		__atomic_compare_exchange_n(word, &old, work->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	} else {
		old = __atomic_fetch_add(word, work->operand, __ATOMIC_SEQ_CST);
	}
	*(uint64_t *)work->local = old;
}

static enum rmr_status cma_error(const struct shm_conn *conn, int errnum)
{
	static atomic_bool told;

	if (errnum == ESRCH)
		return RMR_DISCONNECTED;
	if (errnum == EPERM && !atomic_exchange(&told, true))
		log_error("the kernel does not let us access the memory of process %d; put shared "
			  "memory into arenas, or allow it: sysctl kernel.yama.ptrace_scope=0",
			  conn->peer_pid);
	return errnum == EPERM ? RMR_DENIED : RMR_ACCESS;
}

static bool process_is_dead(const struct shm_conn *conn)
{
	struct pollfd fd = {.fd = conn->peer_pidfd, .events = POLLIN};

	return poll(&fd, 1, 0) != 0;
}

/* Memory outside arenas. The process is looked at after a READ, so that what a reused process
 * number gave us is not taken for the peer's; and before a WRITE. */
static enum rmr_status move_process(const struct shm_conn *conn, const struct shm_remote *remote,
				    const struct piece *piece)
{
	size_t done = 0;

	if (!piece->reading && process_is_dead(conn))
		return RMR_DISCONNECTED;
	while (done < piece->length) {
		size_t left = piece->length - done;
		uintptr_t address = (uintptr_t)(remote->address + piece->offset + done);
		struct iovec mine = {.iov_base = piece->local + done, .iov_len = left};
		struct iovec theirs = {.iov_base = (void *)address, .iov_len = left};
		ssize_t moved =
			piece->reading ? process_vm_readv(conn->peer_pid, &mine, 1, &theirs, 1, 0)
				       : process_vm_writev(conn->peer_pid, &mine, 1, &theirs, 1, 0);

		if (moved <= 0)
			return cma_error(conn, moved < 0 ? errno : EFAULT);
		done += (size_t)moved;
	}
	return piece->reading && process_is_dead(conn) ? RMR_DISCONNECTED : RMR_OK;
}

static enum rmr_status move(const struct shm_conn *conn, const struct shm_remote *remote,
			    const struct piece *piece)
{
	if (!remote->mapping)
		return move_process(conn, remote, piece);
	if (piece->reading)
		copy(piece->local, remote->memory + piece->offset, piece->length);
	else
		copy(remote->memory + piece->offset, piece->local, piece->length);
	return RMR_OK;
}

/* Enters the peer's memory: false when the region, or our own, is closed. */
static bool enter(struct shm_conn *conn, const struct shm_remote *remote,
		  const struct rmr_region *mine)
{
	atomic_store(&conn->mine->active, 1);
	return atomic_load(remote->key_cell) == remote->key &&
	       !(mine && atomic_load(&mine->closed));
}

enum rmr_status shm_access(struct shm_conn *conn, const struct rmr_work *work)
{
	const struct shm_remote *remote = (const struct shm_remote *)work->remote;
	const struct rmr_region *mine = work->flags & RMR_INLINE ? NULL : work->region;
	struct piece piece = {
		.reading = work->op == RMR_OP_READ, .offset = work->offset, .local = work->local};
	size_t left = work->length;
	enum rmr_status status = RMR_OK;

	if (!may(remote, work))
		return RMR_ACCESS;
	do {
		piece.length = left < PIECE ? left : PIECE;
		if (!enter(conn, remote, mine))
			status = RMR_ACCESS;
		else if (work->op >= RMR_OP_COMPARE_SWAP)
			access_atomic(remote, work);
		else
			status = move(conn, remote, &piece);
		atomic_store_explicit(&conn->mine->active, 0, memory_order_release);
		piece.offset += piece.length;
		piece.local += piece.length;
		left -= piece.length;
	} while (left > 0 && status == RMR_OK);
	if (!piece.reading)
		atomic_thread_fence(memory_order_seq_cst); /* see above */
	return status;
}

bool shm_enter_own(struct shm_conn *conn, const struct rmr_region *mine)
{
	atomic_store(&conn->mine->active, 1);
	return !mine || !atomic_load(&mine->closed);
}

void shm_leave_own(struct shm_conn *conn)
{
	atomic_store_explicit(&conn->mine->active, 0, memory_order_release);
}

bool shm_conn_lingers(const struct rmr_conn *base, int *process)
{
	const struct shm_conn *conn = (const struct shm_conn *)base;

	/* Relaxed: it was set by the thread that closed the region, which is the caller's, or
	 * before; then it stays. */
	if (!atomic_load_explicit(&conn->stuck, memory_order_relaxed) ||
	    (conn->peer_pidfd >= 0 && process_is_dead(conn)))
		return false;
	*process = conn->peer_pidfd < 0 ? -1 : fcntl(conn->peer_pidfd, F_DUPFD_CLOEXEC, 0);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * The end of access to a region
 */

static bool bit_is_set(const uint64_t *bits, uint32_t index)
{
	return bits[index / 64] >> index % 64 & 1;
}

static void set_bit(uint64_t *bits, uint32_t index, bool value)
{
	uint64_t bit = (uint64_t)1 << index % 64;

	bits[index / 64] = value ? bits[index / 64] | bit : bits[index / 64] & ~bit;
}

void shm_access_exported(struct shm_conn *conn, uint32_t index)
{
	struct shm_device *device = (struct shm_device *)conn->base.queue->device;

	pthread_mutex_lock(&device->lock);
	set_bit(conn->exported, index, true);
	pthread_mutex_unlock(&device->lock);
}

/* The peer may be in the region. Not if it is dead, or was found not to leave before. */
static bool peer_is_inside(const struct shm_conn *conn)
{
	/* Relaxed: the owner's poll acts on `stuck` some time later. */
	return atomic_load(&conn->theirs->active) != 0 &&
	       !atomic_load_explicit(&conn->stuck, memory_order_relaxed) &&
	       !(conn->peer_pidfd >= 0 && process_is_dead(conn));
}

void shm_access_revoke(struct shm_device *device, struct shm_region *region)
{
	region->deadline_ns = clock_deadline_ns(QUIESCE_LIMIT_MS);
	/* Sequentially consistent, as is the load of `active` that follows: see above. */
	atomic_store(&device->table[region->index].key, 0);
	pthread_mutex_lock(&device->lock);
	list_for_each (link, &device->conns) {
		struct shm_conn *conn = list_entry(link, struct shm_conn, device_link);

		set_bit(conn->in_own, region->index, atomic_load(&conn->mine->active) != 0);
	}
	pthread_mutex_unlock(&device->lock);
}

bool shm_access_is_over(struct shm_device *device, struct shm_region *region)
{
	bool late = clock_passed(region->deadline_ns), over = true;
	uint32_t index = region->index;

	pthread_mutex_lock(&device->lock);
	list_for_each (link, &device->conns) {
		struct shm_conn *conn = list_entry(link, struct shm_conn, device_link);

		/* Seen outside once is enough: the key is gone, it does not come in again. */
		if (bit_is_set(conn->exported, index) && !peer_is_inside(conn))
			set_bit(conn->exported, index, false);
		if (bit_is_set(conn->in_own, index) && atomic_load(&conn->mine->active) == 0)
			set_bit(conn->in_own, index, false);
		if (bit_is_set(conn->exported, index) && late && region->closing) {
			atomic_store_explicit(&conn->stuck, true, memory_order_relaxed);
			set_bit(conn->exported, index, false);
		}
		over &= !bit_is_set(conn->exported, index) && !bit_is_set(conn->in_own, index);
	}
	pthread_mutex_unlock(&device->lock);
	return over;
}

void shm_access_quiesce(struct shm_device *device, struct shm_region *region)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};

	region->closing = true;
	for (int round = 0; !shm_access_is_over(device, region); round++) {
		if (round < SPINS) {
			for (int i = 0; i < 32; i++)
				cpu_relax();
		} else if (round < 2 * SPINS) {
			sched_yield();
		} else {
			nanosleep(&nap, NULL);
		}
	}
}
