/*
 * What holds of RDMA on a host whoever looks at it: the verbs provider, which opens adapters, and
 * kv-doctor, which reads about them in files. Both choose the same GID and give the same advice.
 *
 * Pure functions, any thread; they need no verbs.
 */
#ifndef FABRIC_RDMA_HOST_H
#define FABRIC_RDMA_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* There is no adapter to open: what is missing, and how to get it. has_class: the kernel has
 * /sys/class/infiniband; has_files: there is /dev/infiniband. */
const char *rdma_host_no_adapter(bool has_class, bool has_files);

/* An IPv4 address written as one of IPv6? */
bool rdma_host_gid_is_ipv4(const uint8_t gid[16]);
bool rdma_host_gid_is_link_local(const uint8_t gid[16]);

#define RDMA_HOST_NO_RANK 3

/* Of the GIDs of RoCE v2 the one of the lowest rank is of most use, and of equals the first: IPv4,
 * else IPv6, else link-local. */
int rdma_host_gid_rank(const uint8_t gid[16]);

#endif
