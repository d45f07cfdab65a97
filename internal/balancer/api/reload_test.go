// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

func TestReload(t *testing.T) {
	refused := fmt.Errorf("x.yaml:3: services: missing\n%w", ops.ErrNotReloaded)
	for name, test := range map[string]struct {
		err  error
		code int
	}{
		"in force":       {nil, http.StatusOK},
		"refused":        {refused, http.StatusConflict},
		"while stopping": {fmt.Errorf("x.yaml: %w", ops.ErrStopping), http.StatusServiceUnavailable},
		"broken":         {errors.New("x.yaml: the kernel refuses"), http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			path, stop := serveAll(t, Balancer{Reload: func(string) (ops.Reloaded, error) {
				return ops.Reloaded{File: "x.yaml"}, test.err
			}})
			defer stop()
			client := NewClient(path)
			post(t, client, reloadPath, "", test.code, "x.yaml")
			done, err := client.Reload(t.Context())
			switch {
			case test.err != nil && (err == nil || err.Error() != test.err.Error()):
				t.Errorf("the client says %v, expected %v", err, test.err)
			case test.err == nil && (err != nil || done.File != "x.yaml"):
				t.Errorf("the client says %v, %v", done, err)
			}
		})
	}
}
