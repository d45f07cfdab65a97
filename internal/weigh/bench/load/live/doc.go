// SPDX-License-Identifier: Apache-2.0

// Package live holds many connections open through a balancer, sends requests over each, and counts the effects of
// changes to the balancer: which connections broke and how, which were answered by another host, and which new
// connections and UDP queries failed.
//
// It has three parts. Serve is the program of each backend and Hold that of each client, both in processes of their
// own. ClientGroup starts the clients in a laboratory and controls them together.
package live
