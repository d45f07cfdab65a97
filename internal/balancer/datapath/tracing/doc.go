// SPDX-License-Identifier: Apache-2.0

// Package tracing puts into words what the traced programs tell of packets, asks them of packets that did not come, and
// has the captures that run take packets of the services and backends that they name, whatever numbers a change gives
// these. The programs themselves, and the slots of captures, are those of package traced.
package tracing
