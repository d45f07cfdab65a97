// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Reload has the daemon read its configuration file again, and returns when the file is in force.
// Errors: ErrNotRunning, ErrNoRights, the context's (then it may still be put in force), or why the
// daemon has refused it: then nothing was changed.
func (c *Client) Reload(ctx context.Context) (*ops.Reloaded, error) {
	body, err := c.open(ctx, c.slowClient, http.MethodPost, reloadPath, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	done := &ops.Reloaded{}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(done); err != nil {
		return nil, fmt.Errorf("reload: the daemon on %s broke off: %w", c.at, err)
	}
	return done, nil
}
