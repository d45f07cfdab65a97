// SPDX-License-Identifier: Apache-2.0
//
// Stands for a kernel with IPVS where ipvsadm asks it by socket options: it says that it has IPVS, and
// takes whatever it is told. So ipvsadm reads and judges rules on kernels without. Preloaded.

#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

// From <linux/ip_vs.h>.
#define IP_VS_SO_BASE (64 + 1024 + 64)
struct ip_vs_getinfo {
	unsigned int version, size, num_services;
};


int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	(void)fd, (void)level, (void)option;
	struct ip_vs_getinfo info = {.version = 0x010201, .size = 4096};
	socklen_t n = *length < sizeof(info) ? *length : sizeof(info);
	memset(value, 0, *length);
	memcpy(value, &info, n);
	return 0;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	(void)fd, (void)level, (void)option, (void)value, (void)length;
	return 0;
}
