// SPDX-License-Identifier: Apache-2.0

// Package cmdkit holds the parts that commands share: the flags for the running balancer and for the output, tables and
// texts for a person, and facts about their own process.
package cmdkit
