/* RDMA on a host: see rdma_host.h. */
#include "fabric/rdma_host.h"

#include <string.h>

const char *rdma_host_no_adapter(bool has_class, bool has_files)
{
	if (!has_class)
		return "no RDMA device. To add one: with an adapter modprobe its driver and "
		       "ib_uverbs; without one modprobe rdma_rxe; rdma link add rxe0 type rxe "
		       "netdev NIC (docs/providers.md)";
	if (!has_files)
		return "no /dev/infiniband: modprobe ib_uverbs rdma_ucm; in a container give it "
		       "with --device=/dev/infiniband";
	return "no RDMA device. To add one in software: modprobe rdma_rxe; "
	       "rdma link add rxe0 type rxe netdev NIC (docs/providers.md)";
}

bool rdma_host_gid_is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, mapped_prefix, sizeof(mapped_prefix)) == 0;
}

bool rdma_host_gid_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

int rdma_host_gid_rank(const uint8_t gid[16])
{
	if (rdma_host_gid_is_ipv4(gid))
		return 0;
	return rdma_host_gid_is_link_local(gid) ? RDMA_HOST_NO_RANK - 1 : 1;
}
