// SPDX-License-Identifier: Apache-2.0

// Package live holds many connections open through a balancer, asks over each of them again and again, and tells their
// fate while the balancer was changed: which broke and how, which were answered by another host, and how connections
// and UDP queries fared that were new.
//
// It has three parts: Serve is the program of each backend, Hold that of each client, both as processes of their own;
// ClientGroup starts them in a laboratory and speaks for all clients together.
package live
