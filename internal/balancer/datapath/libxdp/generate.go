// SPDX-License-Identifier: Apache-2.0

package libxdp

// The dispatcher in each supported version of the protocol: their configurations differ in size.
//
//go:generate ../../../../scripts/bpf2go.sh -no-global-types -cflags -DDISPATCHER_VERSION=2 v2 ../../../../bpf/libxdp/dispatcher.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types -cflags -DDISPATCHER_VERSION=3 v3 ../../../../bpf/libxdp/dispatcher.bpf.c
