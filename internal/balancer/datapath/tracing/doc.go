// SPDX-License-Identifier: Apache-2.0

// Package tracing puts the records of the traced programs into words, asks the programs about packets that did not
// come, and keeps running captures on the services and backends that they name, whatever numbers a change gives these.
// The programs themselves, and the slots of captures, are those of package traced.
package tracing
