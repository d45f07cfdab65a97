// SPDX-License-Identifier: Apache-2.0

// Package readview is the read access to a data plane: status, counters, flows, tables, reply hops and the mirror of
// routes. Each change publishes a new View, and no View is modified afterwards. Readers therefore do not wait for
// a change in progress, which holds the data plane's lock while the kernel loads and verifies a program. The maps stay
// open until the reader has finished (Published.Read).
package readview
