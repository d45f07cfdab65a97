// SPDX-License-Identifier: Apache-2.0

package netfilter

import "github.com/jeoul/jeoul/internal/move/importer/draft"

// inRule and inStatement are the places of Keywords: a rule of iptables, and a statement of nft.
const (
	inRule      = "rule"
	inStatement = "statement"
)

// Keywords are the options and statements that do not change where the packets of a new connection go.
var Keywords = draft.Keywords{
	{Where: inRule, Name: "-m", Example: "-m tcp", Why: "brings a module, whose options are read or have a remark"},
	{Where: inRule, Name: "--match", Example: "--match tcp",
		Why: "brings a module, whose options are read or have a remark"},
	{Where: inRule, Name: "--comment", Example: "-m comment --comment web", Why: "is for readers"},
	{Where: inRule, Name: "-c", Example: "-c 1 60", Why: "sets counters"},
	{Where: inRule, Name: "--set-counters", Example: "--set-counters 1 60", Why: "sets counters"},
	{Where: inRule, Name: "--syn", Example: "--syn",
		Why: "matches the first packet of a connection, by which it is translated"},
	{Where: inRule, Name: "--random", Example: "", Why: "chooses the port that a connection is sent from"},
	{Where: inRule, Name: "--random-fully", Example: "", Why: "chooses the port that a connection is sent from"},
	{Where: inRule, Name: "--persistent", Example: "", Why: "keeps a client at an address of a range, as sh does"},
	{Where: inRule, Name: "--to-ports", Example: "",
		Why: "is of REDIRECT and MASQUERADE: the port that a connection is sent from"},

	{Where: inStatement, Name: "counter", Example: "counter", Why: "counts"},
	{Where: inStatement, Name: "comment", Example: `comment "web"`, Why: "is for readers"},
	{Where: inStatement, Name: "log", Example: `log prefix "web "`, Why: "logs"},
}
