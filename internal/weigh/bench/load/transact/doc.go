// SPDX-License-Identifier: Apache-2.0

// Package transact makes transactions: a client sends a byte, and the server answers with one byte. TCP_CRR ("connect,
// request, response") opens a connection for each transaction, TCP_RR keeps one for all.
//
// Both are netperf's tests of these names, step by step (netperf 2.7.0, src/nettest_omni.c,
// https://github.com/HewlettPackard/netperf). In TCP_CRR the server closes first: recv_omni closes the connection as
// soon as it has answered, and send_omni waits for that end before it closes its own side (disconnect_data_socket with
// initiate 0, because there is a control connection). So the servers keep closed connections (TIME-WAIT), and the
// client's ports are free at once. Connecting and closing are part of the transaction's time.
//
// There are differences: netperf has a process at either end of each stream, and a control connection for each stream,
// which must reach the same server through a balancer. Here a client and a server have one thread each for any number
// of streams (for a single stream both make blocking calls, as netperf and netserver do), and there is no control
// connection. Type Netperf runs netperf itself with a single stream, if it is installed.
package transact
