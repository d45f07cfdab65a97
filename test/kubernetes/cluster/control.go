// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/components"
)

// Ports and addresses of the control plane, in its own namespace.
const (
	apiServerPort  = "6443"
	etcdClientURL  = "http://127.0.0.1:2379"
	etcdPeerURL    = "http://127.0.0.1:2380"
	apiServiceIPv4 = "10.96.0.1"
)

// controllers are the controllers that a cluster without clouds, volumes and batches has.
const controllers = "clusterrole-aggregation-controller,daemonset-controller,deployment-controller," +
	"disruption-controller,endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller," +
	"garbage-collector-controller," +
	"namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,replicaset-controller," +
	"root-ca-certificate-publisher-controller,service-cidr-controller,serviceaccount-controller," +
	"statefulset-controller,taint-eviction-controller"

// pollInterval is how often a condition of another process is looked at.
const pollInterval = 20 * time.Millisecond

// controlPlane is the processes of the control plane.
type controlPlane struct {
	cluster                *Cluster
	etcd, server, managers *lab.Process
}

func (p *controlPlane) start(ctx context.Context) error {
	if err := p.startEtcd(); err != nil {
		return err
	}
	if err := p.startServer(ctx); err != nil {
		return err
	}
	return p.startManagers()
}

// run starts a component of Kubernetes on a host. It outlives ctx, and ends with the laboratory.
func (c *Cluster) run(host *lab.Host, role string, arguments ...string) (*lab.Process, error) {
	log, err := logFile(host, role)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return host.Start(context.Background(), lab.Command{Path: c.executable, Args: append([]string{role}, arguments...),
		Env: append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=false"), Stdout: log, Stderr: log})
}

func (p *controlPlane) startEtcd() (err error) {
	host := p.cluster.Control
	p.etcd, err = p.cluster.run(host, components.Etcd, filepath.Join(host.Dir, "etcd"), etcdClientURL, etcdPeerURL)
	return err
}

func (p *controlPlane) startServer(ctx context.Context) error {
	c, host := p.cluster, p.cluster.Control
	certificate, key, err := c.authority.issueServer("kube-apiserver", host.IPv4, host.IPv6,
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(apiServiceIPv4))
	if err != nil {
		return err
	}
	arguments := []string{"--etcd-servers=" + etcdClientURL, "--service-cluster-ip-range=" + ServiceCIDRs,
		"--advertise-address=" + host.IPv4.String(), "--bind-address=::", "--secure-port=" + apiServerPort,
		"--client-ca-file=" + c.authority.file(), "--tls-cert-file=" + certificate, "--tls-private-key-file=" + key,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--allow-privileged",
		// A server that is told to end does not wait for watches, which never end by themselves.
		"--shutdown-delay-duration=0s", "--shutdown-watch-termination-grace-period=0s"}
	if c.options.NodePorts != "" {
		arguments = append(arguments, "--service-node-port-range="+c.options.NodePorts)
	}
	if p.server, err = c.run(host, components.APIServer, arguments...); err != nil {
		return err
	}
	return p.awaitReady(ctx)
}

// awaitReady waits until the API server says that it is ready.
func (p *controlPlane) awaitReady(ctx context.Context) error {
	var last error
	err := poll(ctx, func() bool {
		last = p.cluster.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil || ended(p.server) || ended(p.etcd)
	})
	if ended(p.server) || ended(p.etcd) {
		return fmt.Errorf("etcd or kube-apiserver ended; see the logs in %s", p.cluster.Control.Dir)
	}
	if err != nil {
		return fmt.Errorf("wait for kube-apiserver (its log is in %s): %w", p.cluster.Control.Dir,
			errors.Join(last, err))
	}
	return nil
}

func (p *controlPlane) startManagers() (err error) {
	c := p.cluster
	arguments := []string{"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--controllers=" + controllers,
		"--bind-address=127.0.0.1", "--root-ca-file=" + c.authority.file(), "--kube-api-qps=500",
		"--kube-api-burst=1000"}
	if c.options.NodeGrace > 0 {
		arguments = append(arguments, "--node-monitor-grace-period="+c.options.NodeGrace.String(),
			"--node-monitor-period="+(c.options.NodeGrace/10).String())
	}
	p.managers, err = c.run(c.Control, components.ControllerManager, arguments...)
	return err
}

// KillAPIServer ends the API server as a crash does. The objects that it has stored stay with etcd.
func (c *Cluster) KillAPIServer() error { return c.control.server.Kill(context.Background()) }

// StartAPIServer starts it again after KillAPIServer, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error { return c.control.startServer(ctx) }

func ended(p *lab.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// poll calls f until it returns true, or ctx ends.
func poll(ctx context.Context, f func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
