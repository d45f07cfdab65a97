// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const membersPath = "/v1/members"

// MembersParams selects members; exported, for huma to find it.
type MembersParams struct {
	Members []string          `query:"member,explode" doc:"Only the members of these names or addresses; all where none is named"`
	States  []ops.MemberState `query:"state,explode" enum:"alive,failed,left,unknown" doc:"Only members in these states; in any where none is named"`
}

// MemberParams has the member that a request is about; exported, for huma to find it.
type MemberParams struct {
	Member string `path:"member" doc:"A member's name or address"`
}

// handleMembers adds the balancers that share VIPs with this one.
func (b Balancer) handleMembers(a huma.API) {
	addEndpoint(a, endpoint{method: http.MethodGet, path: membersPath, id: "list-members",
		summary: "This balancer among those that it shares VIPs with, and the others as it knows them"},
		func(_ context.Context, in *MembersParams) (*answer[ops.Members], error) {
			status, err := b.Status()
			return &answer[ops.Members]{status.MembersOf(in.Members, in.States)}, err
		})
	addEndpoint(a, endpoint{method: http.MethodGet, path: membersPath + "/{member}", id: "get-member",
		summary: "Another member as this balancer knows it"},
		func(_ context.Context, in *MemberParams) (*answer[ops.Member], error) {
			status, err := b.Status()
			if err != nil {
				return nil, err
			}
			member, err := status.Member(in.Member)
			return &answer[ops.Member]{member}, err
		})
}

// Members asks for the members of these names or addresses; for all where none is named. Errors: as those of Services.
func (c *Client) Members(ctx context.Context, names ...string) (*ops.Members, error) {
	path, members := membersPath, &ops.Members{}
	if len(names) > 0 {
		path += "?" + url.Values{"member": names}.Encode()
	}
	return members, c.request(ctx, http.MethodGet, path, nil, members)
}
