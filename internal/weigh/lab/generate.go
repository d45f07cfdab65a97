// SPDX-License-Identifier: Apache-2.0

package lab

//go:generate ../../../scripts/bpf2go.sh labSwitch ../../../bpf/lab/switch.bpf.c
//go:generate ../../../scripts/bpf2go.sh labWire ../../../bpf/lab/wire.bpf.c
