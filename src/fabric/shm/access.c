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
 *	access
 *	active = 0
 *
 * The first two steps of each side are sequentially consistent: at least one side sees the other's
 * store. Either the initiator sees that the key is gone and does nothing, or the owner sees that an
 * access is under way and waits for its end. A peer that was stopped or killed in the middle is
 * waited for only so long: it is told from a slow one by nothing but time.
 *
 * The last store is sequentially consistent too after a WRITE: the data must have left the store
 * buffer before the completion says that it is placed. (An atomic instruction has seen to that.)
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/shm/shm.h"

#define QUIESCE_LIMIT_MS 200
#define CMA_CHUNK	 ((size_t)1 << 30) /* the kernel moves at most 2 GiB a call */

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

static void access_mapped(const struct shm_remote *remote, const struct rmr_work *work,
			  const void *source)
{
	uint8_t *memory = remote->memory + work->offset;
	uint64_t old;

	switch (work->op) {
	case RMR_OP_READ:
		copy(work->local, memory, work->length);
		return;
	case RMR_OP_COMPARE_SWAP:
		old = work->compare;
		__atomic_compare_exchange_n((uint64_t *)memory, &old, work->operand, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*(uint64_t *)work->local = old;
		return;
	case RMR_OP_FETCH_ADD:
		*(uint64_t *)work->local =
			__atomic_fetch_add((uint64_t *)memory, work->operand, __ATOMIC_SEQ_CST);
		return;
	default:
		copy(memory, source, work->length);
	}
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
static enum rmr_status access_process(const struct shm_conn *conn, const struct shm_remote *remote,
				      const struct rmr_work *work, const void *source)
{
	bool reading = work->op == RMR_OP_READ;
	size_t done = 0;

	if (!reading && process_is_dead(conn))
		return RMR_DISCONNECTED;
	while (done < work->length) {
		size_t left = work->length - done, size = left < CMA_CHUNK ? left : CMA_CHUNK;
		struct iovec mine = {
			.iov_base = (uint8_t *)(reading ? work->local : (void *)source) + done,
			.iov_len = size};
		struct iovec theirs = {
			.iov_base = (void *)(uintptr_t)(remote->address + work->offset + done),
			.iov_len = size};
		ssize_t moved =
			reading ? process_vm_readv(conn->peer_pid, &mine, 1, &theirs, 1, 0)
				: process_vm_writev(conn->peer_pid, &mine, 1, &theirs, 1, 0);

		if (moved <= 0)
			return cma_error(conn, moved < 0 ? errno : EFAULT);
		done += (size_t)moved;
	}
	return reading && process_is_dead(conn) ? RMR_DISCONNECTED : RMR_OK;
}

enum rmr_status shm_access(struct shm_conn *conn, const struct rmr_work *work, const void *source)
{
	const struct shm_remote *remote = (const struct shm_remote *)work->remote;
	enum rmr_status status = RMR_OK;

	if (!may(remote, work))
		return RMR_ACCESS;
	atomic_store(&conn->mine->active, 1);
	if (atomic_load(remote->key_cell) != remote->key)
		status = RMR_ACCESS;
	else if (remote->mapping)
		access_mapped(remote, work, source);
	else
		status = access_process(conn, remote, work, source);
	if (work->op >= RMR_OP_READ)
		atomic_store_explicit(&conn->mine->active, 0, memory_order_release);
	else
		atomic_store(&conn->mine->active, 0);
	return status;
}

void shm_access_quiesce(struct shm_device *device)
{
	pthread_mutex_lock(&device->lock);
	list_for_each (link, &device->conns) {
		struct shm_conn *conn = list_entry(link, struct shm_conn, device_link);
		uint64_t deadline_ns = 0;

		for (int i = 0; atomic_load(&conn->theirs->active) != 0; i++) {
			if (i < 1000) {
				cpu_relax();
				continue;
			}
			if (deadline_ns == 0)
				deadline_ns = clock_deadline_ns(QUIESCE_LIMIT_MS);
			if (conn->base.lost || clock_passed(deadline_ns)) {
				log_warn("%s seems to be stuck in an access", conn->base.peer);
				break;
			}
			sched_yield();
		}
	}
	pthread_mutex_unlock(&device->lock);
}
