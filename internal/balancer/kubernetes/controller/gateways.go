// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/push"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// gatewaysTimeout is the time for which the first push waits for the objects of Gateways.
const gatewaysTimeout = 30 * time.Second

// awaitsGateways reports whether Services wait for Gateways, to be pushed with them after a start.
func (c *Controller) awaitsGateways() bool {
	return c.opt.Gateways != nil && c.objects == nil && !c.opt.Watcher.GatewaysSynced() &&
		time.Since(c.started) < gatewaysTimeout
}

// build takes a snapshot of the cluster, and returns its services in the order of their names.
func (c *Controller) build() []lb.Service {
	cluster := c.opt.Watcher.Cluster()
	if c.opt.Gateways != nil {
		c.plan = c.planGateways(&cluster)
	}
	c.result = model.Rebuild(cluster, c.opt.Settings, c.result)
	if c.plan == nil {
		return c.result.Services
	}
	services := slices.Concat(c.result.Services,
		c.plan.Build(c.result.Grants, model.NewFinder(cluster, c.opt.Settings)))
	slices.SortFunc(services, func(a, b lb.Service) int { return strings.Compare(a.Name, b.Name) })
	return services
}

// planGateways returns the plan of Gateways, and adds their claims to the cluster. While the API server does not list
// all that they need, the plan is that of the last objects. Where there are none, as after a start, it is nil, and the
// balancer's services for Gateways stay.
func (c *Controller) planGateways(cluster *model.Cluster) *gateway.Plan {
	watcher, settings := c.opt.Watcher, *c.opt.Gateways
	if c.listed = watcher.GatewaysSynced(); c.listed {
		listed := watcher.Gateways()
		c.objects, c.opt.Pusher.Keep = &listed, nil
	}
	if c.objects == nil {
		c.opt.Pusher.Keep = gateway.MayName
		cluster.ClaimsUnknown = !watcher.GatewayAddressesKnown()
		if !cluster.ClaimsUnknown {
			cluster.Claims = gateway.NewPlan(watcher.Gateways(), settings).Claims(c.opt.Settings.Pools)
		}
		return nil
	}
	objects := *c.objects
	objects.Services = cluster.Services
	plan := gateway.NewPlan(objects, settings)
	cluster.Claims = plan.Claims(c.opt.Settings.Pools)
	return plan
}

// certificates returns the contents of the certificates that services name, by the names of their files.
func (c *Controller) certificates() map[string][]byte {
	if c.plan == nil {
		return nil
	}
	return c.plan.Certificates
}

// pushServices pushes the services, with the certificates that they name.
func (c *Controller) pushServices(ctx context.Context) (push.Result, error) {
	if c.plan == nil || c.opt.Gateways.Certificates == "" {
		return c.opt.Pusher.Push(ctx, c.services)
	}
	if err := writeCertificates(c.opt.Gateways.Certificates, c.plan.Certificates); err != nil {
		return push.Result{},
			fmt.Errorf("write the certificates of HTTPS listeners: %w; --certificates names the directory",
				err)
	}
	result, err := c.opt.Pusher.Push(ctx, c.services)
	if err == nil && len(result.Refused) == 0 {
		c.removeCertificates()
	}
	return result, err
}

// writeCertificates writes those files whose contents differ.
func writeCertificates(dir string, files map[string][]byte) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if previous, err := os.ReadFile(path); err == nil && bytes.Equal(previous, text) {
			continue
		}
		if err := replaceFile(path, text); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file that only its owner and group may read, as a whole or not at all.
func replaceFile(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // where it was not renamed
	_, err = file.Write(text)
	if chmodErr := file.Chmod(0o640); err == nil {
		err = chmodErr
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// removeCertificates removes the files of certificates that no listener uses any more. A file that cannot be removed is
// tried again at the next change.
func (c *Controller) removeCertificates() {
	paths, _ := filepath.Glob(filepath.Join(c.opt.Gateways.Certificates, "*_*.pem"))
	for _, path := range paths {
		if _, wanted := c.plan.Certificates[filepath.Base(path)]; !wanted {
			if err := os.Remove(path); err != nil {
				c.opt.Log.Warn("a certificate that is not used any more cannot be removed", "err", err)
			}
		}
	}
}

// pending returns the reason for which the balancer does not have a service; empty: it has. The lock is held.
func (c *Controller) pending(service string) string {
	if why, refused := c.refused[service]; refused {
		return why
	}
	switch problem := c.health.Balancer.Problem; {
	case c.opt.Pusher.Has(service):
		return ""
	case problem != "":
		return "the balancer did not take it: " + problem
	}
	return "the balancer does not have it yet"
}
