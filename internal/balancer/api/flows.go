// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const flowsPath = "/v1/flows"

// FlowParams selects flows; exported, for huma to find it.
type FlowParams struct {
	Of     []string       `query:"of,explode" doc:"Only flows of these services, such as web, and backends, such as web/web01; all where none is named"`
	Client string         `query:"client" doc:"Only flows of clients in this network, such as 192.0.2.0/24, or of this address"`
	States []lb.FlowState `query:"state,explode" doc:"Only flows in these states; in any where none is named"`
	Limit  int            `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"How many are listed at most; matching says how many there are"`
}

// handleFlows adds the list of remembered flows.
func (b Balancer) handleFlows(a huma.API) {
	addEndpoint(a, endpoint{method: http.MethodGet, path: flowsPath, id: "list-flows",
		summary: "Flows that the data plane remembers"},
		func(_ context.Context, in *FlowParams) (*answer[ops.FlowList], error) {
			query := ops.FlowQuery{Of: in.Of, States: in.States, Limit: in.Limit}
			if in.Client != "" {
				client, err := ParseClients(in.Client)
				if err != nil {
					return nil, err
				}
				query.Client = client
			}
			flows, err := b.Flows(query)
			return &answer[ops.FlowList]{flows}, err
		})
}

// ParseClients reads a network of clients, or the address of one. Error: ops.ErrBadRequest.
func ParseClients(text string) (netip.Prefix, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%w: %q is neither a network, such as 192.0.2.0/24, nor an address",
			ops.ErrBadRequest, text)
	}
	return netip.PrefixFrom(address, address.BitLen()), nil
}

// Flows asks for remembered flows. Errors: as those of Services.
func (c *Client) Flows(ctx context.Context, q ops.FlowQuery) (*ops.FlowList, error) {
	query := url.Values{"of": q.Of}
	if q.Client.IsValid() {
		query.Set("client", q.Client.String())
	}
	for _, state := range q.States {
		query.Add("state", string(state))
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	flows := &ops.FlowList{}
	return flows, c.request(ctx, http.MethodGet, flowsPath+"?"+query.Encode(), nil, flows)
}
