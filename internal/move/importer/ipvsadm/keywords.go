// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import "github.com/jeoul/jeoul/internal/move/importer/draft"

// inServer and inService are the places of Keywords.
const (
	inService = "service"
	inServer  = "server"
)

// Keywords are the options that do not change where connections go.
var Keywords = draft.Keywords{
	{Where: inService, Name: "6", Example: "-6", Why: "says that a mark is of IPv6; an address says it itself"},
	{Where: inService, Name: "n", Example: "-n", Why: "says how IPVS prints"},
	{Where: inServer, Name: "tun-nocsum", Example: "--tun-nocsum",
		Why: "says whether a tunnel's own header has a checksum, and receivers take both"},
	{Where: inServer, Name: "tun-csum", Example: "--tun-csum",
		Why: "says whether a tunnel's own header has a checksum, and receivers take both"},
	{Where: inServer, Name: "tun-remcsum", Example: "--tun-remcsum",
		Why: "says who computes the checksum of a tunnelled packet"},
}
