// SPDX-License-Identifier: Apache-2.0

package change

import (
	"github.com/jeoul/jeoul/internal/weigh/report/model"
)

// Kind is of changes under live connections.
var Kind = model.Registration{
	Titles: map[string]string{"change": "Live connections while backends change"},
	Name:   "Live connections",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamEvent) {
			return nil
		}
		return &model.Kind{Question: "who of those that are connected through each is cut off while its backends change",
			Sheets: changeSheets, Verdict: changeVerdict, Figures: changeFigures, Reading: changeReading,
			Answer: changeAnswer, Overview: changeOverview, Picture: changePicture, Sure: changeSure}
	},
}

var changeReading = []model.Paragraph{
	{Head: "Broken", Text: "A connection that was reset, ended, silent for several retransmissions, or answered by another host, while its backend stayed where it was. Every such connection is a user who was cut off by an operator's change."},
	{Head: "Ended", Text: "Connections of a backend that was taken out. A balancer that forwards packets stops sending to it, so they end: that is what removing means, and what draining is for. Proxies and connection tracking go on with what they have for as long as the backend lives, which here it does; where it dies, theirs end too."},
	{Head: "Flapping", Text: "The backend is taken out and put back again and again by each balancer's own way, so that all meet the same. Its own connections end at each turn and count as ended."},
	{Head: "Restarted, killed, stopped",
		Text: "The balancer's process is replaced by another one, killed and replaced a while later, or stopped for good and started anew. What is in the kernel may go on without the process; what the process itself carries ends with it, and stopping takes everything away."},
	{Head: "Upgraded", Text: "Another build of the balancer, which lays out its tables of flows differently, takes over from the one that runs, and that one from it: an upgrade and a downgrade by turns."},
	{Head: "A balancer that leaves",
		Text: "Of several balancers behind a router, one is drained, stopped, killed, cut off or hung, and comes back; the router then spreads all flows anew. A balancer that chooses by a hash sends a flow where the one before did; one that remembers its choices does not know those of another, and breaks what it chooses differently. How long that took is the time until the router has one way less, or more."},
	{Head: "Fell silent",
		Text: "A backend's host is taken off the segment while it holds connections, and comes back without them. Until a balancer has noticed, it sends a share of the connections there, and their SYNs are lost. A balancer that notices by itself needs no health check for that; one that does not goes on until it is told, and all that is lost counts as before its notice."},
	{Head: "Died, hung",
		Text: "A backend's service is killed, or stopped so that its kernel goes on accepting connections and none is answered; its host answers throughout. All that have health checks ask alike. Until they have found it, a share of the new connections goes there and fails; what fails later is a balancer's own fault."},
	{Head: "Ports that are used again",
		Text: "Clients that open one connection after the other from the same few local ports, as crawlers, proxies and resolvers do. A balancer that remembers flows finds an entry of the connection before. A SYN counts as lost if the client's kernel had to send another, a second later, or if none was answered."},
	{Head: "What a reload leaves",
		Text: "A proxy's old processes live until their last connection ends. After many reloads with long connections there are many of them, each with its memory, and each balances by the configuration that it was started with."},
}
