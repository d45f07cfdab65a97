// SPDX-License-Identifier: Apache-2.0

// Package live holds many connections open through a balancer, sends requests over each, and counts the effects of
// changes of the balancer: which connections broke and how, which were answered by another host, and which new
// connections and UDP queries failed.
//
// It has three parts: Serve is the program of each backend, Hold that of each client, both as processes of their own;
// ClientGroup starts them in a laboratory and speaks for all clients together.
package live
