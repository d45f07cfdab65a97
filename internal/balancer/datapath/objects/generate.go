// SPDX-License-Identifier: Apache-2.0

package objects

// The C types become Go types once, with the XDP object.
//
//go:generate ../../../../scripts/bpf2go.sh -type outcome -type scheduler -type agreement -type service -type service_key4 -type service_key6 -type service_slot4 -type service_slot6 -type backend -type mode -type service_kind -type endpoint -type endpoint_slot4 -type endpoint_slot6 -type vector -type block -type turn -type turn_tracked -type backend_load -type flow -type flow_bucket -type flow_state -type refusal -type flow_table -type route_cache -type route_entry -type reply_hop -type hop_flag -type hop_table -type mirror_table -type mirror_state -type mirror_hop -type mirror_net -type mirror_block -type mirror -type head -type service_flag -type slot_bits -type no_service -type return_bucket -type return_table -type host -type host_table -type prefix_verdict -type check_agreement -type check_target -type check_key -type check_answer XDP ../../../../bpf/balancer/jeoul_xdp.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types TC ../../../../bpf/balancer/jeoul_tc.bpf.c

// The program that watches the control plane.
//
//go:generate ../../../../scripts/bpf2go.sh -no-global-types Orphan ../../../../bpf/balancer/orphan.bpf.c

// The programs that send health checks through the data path.
//
//go:generate ../../../../scripts/bpf2go.sh -no-global-types Check ../../../../bpf/balancer/jeoul_check.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types Mark ../../../../bpf/balancer/check/mark.bpf.c

// The programs at sockets of this host.
//
//go:generate ../../../../scripts/bpf2go.sh -no-global-types -type local_settings -type local_socket -type local_peer -type local_event -type local_agreement -type peer_state Local ../../../../bpf/balancer/jeoul_local.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types Abort ../../../../bpf/balancer/local/abort.bpf.c
