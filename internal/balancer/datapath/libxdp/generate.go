// SPDX-License-Identifier: Apache-2.0

package libxdp

// The dispatcher by each version of the protocol that is spoken: their configurations differ in size.
//
//go:generate ../../../../scripts/bpf2go.sh -no-global-types -cflags -DDISPATCHER_VERSION=2 v2 ../../../../bpf/libxdp/dispatcher.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types -cflags -DDISPATCHER_VERSION=3 v3 ../../../../bpf/libxdp/dispatcher.bpf.c
