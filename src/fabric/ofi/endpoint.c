/*
 * A queue's endpoint: domain, completion queue, address vector, and the endpoint itself; and the
 * peers in the address vector.
 *
 * Every queue has a domain of its own. libfabric's tcp provider makes progress by the domain, so
 * with a common one a thread that polls its queue would take in what is for other threads, behind
 * locks that all of them share.
 *
 * Long READs have endpoints of their own beside that one (door.c).
 *
 * Connections between the same two queues lead to the same peer. An address is inserted once and
 * removed when the last of them is closed, so that a server's vector does not grow for ever.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/ofi/internal.h"

static enum rmr_status failed(const char *what, ssize_t code)
{
	return error_set(RMR_SYSTEM, "libfabric: %s: %s", what, library_text(code));
}

static enum rmr_status open_parts(struct ofi_queue *queue)
{
	struct ofi_device *device = ofi_device_of(queue);
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG,
				     .wait_obj =
					     queue_is_rung_for(queue) ? FI_WAIT_NONE : FI_WAIT_FD,
				     .size = OFI_CQ_SIZE};
	struct fi_av_attr av_attr = {.type = device->info->domain_attr->av_type, .count = 64};
	size_t length = sizeof(queue->address.bytes);
	int code;

	code = fi_domain(device->fabric, device->info, &queue->domain, NULL);
	if (code != 0)
		return failed("opening a domain", code);
	code = fi_cq_open(queue->domain, &cq_attr, &queue->cq, NULL);
	if (code != 0)
		return failed("opening a completion queue", code);
	code = fi_av_open(queue->domain, &av_attr, &queue->av, NULL);
	if (code != 0)
		return failed("opening an address vector", code);
	code = fi_endpoint(queue->domain, device->info, &queue->endpoint, NULL);
	if (code != 0)
		return failed("opening an endpoint", code);
	code = fi_ep_bind(queue->endpoint, &queue->cq->fid, FI_TRANSMIT | FI_RECV);
	if (code == 0)
		code = fi_ep_bind(queue->endpoint, &queue->av->fid, 0);
	if (code == 0)
		code = fi_enable(queue->endpoint);
	if (code != 0)
		return failed("enabling an endpoint", code);
	code = fi_getname(&queue->endpoint->fid, queue->address.bytes, &length);
	if (code != 0)
		return failed("asking for the endpoint's address", code);
	queue->address.length = (uint8_t)length;
	return RMR_OK;
}

enum rmr_status endpoint_open(struct ofi_queue *queue)
{
	struct fi_info *info = ofi_device_of(queue)->info;
	enum rmr_status status;

	list_init(&queue->peers);
	queue->needs_local_mr = info->domain_attr->mr_mode & FI_MR_LOCAL;
	queue->inject_max = info->tx_attr->inject_size;
	status = open_parts(queue);
	if (status != RMR_OK)
		endpoint_close(queue);
	return status;
}

void endpoint_close(struct ofi_queue *queue)
{
	if (queue->endpoint)
		fi_close(&queue->endpoint->fid);
	queue->endpoint = NULL;
	while (!list_is_empty(&queue->peers)) {
		struct ofi_peer *peer = list_first_entry(&queue->peers, struct ofi_peer, link);

		list_remove(&peer->link);
		free(peer);
	}
	if (queue->av)
		fi_close(&queue->av->fid);
	if (queue->cq)
		fi_close(&queue->cq->fid);
	packet_fini(queue);
	door_close_station(queue);
	if (queue->domain)
		fi_close(&queue->domain->fid);
	queue->av = NULL;
	queue->cq = NULL;
	queue->domain = NULL;
}

struct ofi_peer *endpoint_peer(struct ofi_queue *queue, const struct ofi_address *address)
{
	struct ofi_peer *peer;

	list_for_each (link, &queue->peers) {
		peer = list_entry(link, struct ofi_peer, link);
		if (peer->address.length == address->length &&
		    memcmp(peer->address.bytes, address->bytes, address->length) == 0) {
			peer->references++;
			return peer;
		}
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer) {
		(void)error_set(RMR_NO_MEMORY, "no memory for a peer");
		return NULL;
	}
	peer->address = *address;
	peer->references = 1;
	/* A whole GREETING_ADDRESS_MAX is there, whatever libfabric reads of it. */
	if (fi_av_insert(queue->av, peer->address.bytes, 1, &peer->number, 0, NULL) != 1) {
		(void)error_set(RMR_PROTOCOL, "libfabric does not take the peer's address");
		free(peer);
		return NULL;
	}
	list_add_tail(&queue->peers, &peer->link);
	return peer;
}

void endpoint_drop_peer(struct ofi_queue *queue, struct ofi_peer *peer)
{
	if (--peer->references > 0)
		return;
	(void)fi_av_remove(queue->av, &peer->number, 1, 0);
	list_remove(&peer->link);
	free(peer);
}
