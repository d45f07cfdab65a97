// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes cluster in a laboratory of network namespaces (package lab): etcd, kube-apiserver,
// kube-controller-manager and a kube-proxy for each node are the real programs, each in a process of its own.
//
//	client01      balancer      web01 … webNN            the last web server
//	                            node-1 … node-NN         control plane
//	   |             |             |                        |
//	---+-------------+-------------+------------------------+---  198.18.0.0/16, 2001:2::/64
//	                            10.244.1.1, fd00:10:244:1::1  on the link to each pod
//	                               | | |
//	                              pods, 10.244.1.2 and up, a namespace each
//
// Two parts are stand-ins. The kubelet of a node runs in this process and talks to the API server from the node's
// namespace: it registers the node, renews its Lease, and runs the processes of its pods, with their probes, restarts
// and graceful ends. The binder stands in for the scheduler. Neither pulls images nor isolates anything but the
// network: [Options.Images] names the program of each image.
//
// The balancer and the nodes have routes to the pods of every node; clients have none.
package cluster
