// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

// TestGatewayAPIComes: a cluster without the Gateway API has its Services served, and its Gateways when it has the API.
func TestGatewayAPIComes(t *testing.T) {
	client, b := fake.NewClientset(web()), &fakeBalancer{}
	class := &v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "jeoul"},
		Spec: v1.GatewayClassSpec{ControllerName: model.DefaultClass}}
	made := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Spec: v1.GatewaySpec{GatewayClassName: "jeoul",
			Listeners: []v1.Listener{{Name: "mail", Protocol: v1.TCPProtocolType, Port: 25}}}}
	made.Status.Addresses = []v1.GatewayStatusAddress{{Value: "192.0.2.2"}}
	gateways := gatewayfake.NewSimpleClientset(class) // NewClientset knows no plural of Gateway
	if _, err := gateways.GatewayV1().Gateways("shop").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := startedWith(t, client, b, func(c *Controller) {
		c.opt.Gateways = &gateway.Settings{Controller: model.DefaultClass}
		if err := c.opt.Watcher.FollowGateways(client, gateways, false); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	eventually(t, "what is missing is said", func() bool { return slices.Contains(c.Health().Missing, "gateways") })
	var resources []metav1.APIResource
	for _, kind := range c.Health().Missing {
		resources = append(resources, metav1.APIResource{Name: string(kind)})
	}
	client.Lock()
	client.Resources = append(client.Resources, &metav1.APIResourceList{GroupVersion: v1.GroupVersion.String(),
		APIResources: resources})
	client.Unlock()
	eventually(t, "the balancer has the Gateway", func() bool {
		return strings.Contains(b.has(), "shop:edge:tcp-25:gateway")
	})
	eventually(t, "nothing is missing", func() bool { return len(c.Health().Missing) == 0 && c.Health().Ready() })
}

// other returns a Service of a name that has no address yet, or those in its status.
func other(name string, addresses ...string) *corev1.Service {
	s := web()
	s.Name, s.Status = name, corev1.ServiceStatus{}
	for _, addr := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr})
	}
	return s
}

// TestGatewayAPIComesWithoutRights: Services are followed where the kinds of the Gateway API come, and the account may
// not list them.
func TestGatewayAPIComesWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, gateways, b := fake.NewClientset(web()), gatewayfake.NewSimpleClientset(), &fakeBalancer{}
		gateways.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		c := startedWith(t, client, b, func(c *Controller) {
			c.opt.Gateways = &gateway.Settings{Controller: model.DefaultClass}
			if err := c.opt.Watcher.FollowGateways(client, gateways, false); err != nil {
				t.Fatal(err)
			}
		})
		eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
		client.Lock()
		client.Resources = append(client.Resources, &metav1.APIResourceList{GroupVersion: v1.GroupVersion.String(),
			APIResources: []metav1.APIResource{{Name: string(watch.Gateways)}}})
		client.Unlock()
		eventually(t, "Gateways are not listed", func() bool {
			h := c.Health()
			return h.Watches[watch.Gateways].Problem != "" && !h.Synced && !h.Ready()
		})
		next := other("next", "192.0.2.5")
		if _, err := client.CoreV1().Services("shop").Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the balancer has the next Service", func() bool { return strings.Contains(b.has(), "shop:next:http") })
	})
}

// TestStartWithoutRights: a program that may not list what Gateways need follows Services all the same, and leaves
// Gateways as the balancer has them, with their addresses. A new Service has none of those.
func TestStartWithoutRights(t *testing.T) {
	for denied, addresses := range map[watch.Kind]int{watch.Gateways: 0, watch.Secrets: 1} {
		t.Run(string(denied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { startWithout(t, denied, addresses) })
		})
	}
}

func startWithout(t *testing.T, denied watch.Kind, addresses int) {
	client := fake.NewClientset(web(), other("next"))
	client.Resources = []*metav1.APIResourceList{{GroupVersion: v1.GroupVersion.String(),
		APIResources: []metav1.APIResource{{Name: string(watch.GatewayClasses)}, {Name: string(watch.Gateways)}}}}
	made := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Spec: v1.GatewaySpec{GatewayClassName: "jeoul",
			Listeners: []v1.Listener{{Name: "mail", Protocol: v1.TCPProtocolType, Port: 25}}}}
	made.Status.Addresses = []v1.GatewayStatusAddress{{Value: "192.0.2.2"}}
	gateways := gatewayfake.NewSimpleClientset(&v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "jeoul"},
		Spec: v1.GatewayClassSpec{ControllerName: model.DefaultClass}})
	if _, err := gateways.GatewayV1().Gateways("shop").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Bool
	deny := func(clienttesting.Action) (bool, runtime.Object, error) {
		return !allowed.Load(), nil, errors.New("forbidden")
	}
	client.PrependReactor("list", string(denied), deny)
	gateways.PrependReactor("list", string(denied), deny)
	b := &fakeBalancer{amends: true, generation: 7, names: []string{"shop:edge:tcp-25:gateway", "shop:gone:http"}}
	c := startedWith(t, client, b, func(c *Controller) {
		c.opt.Gateways = &gateway.Settings{Controller: model.DefaultClass}
		if err := c.opt.Watcher.FollowGateways(client, gateways, true); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	synctest.Wait()
	if !strings.Contains(b.has(), "shop:gone:http") || strings.Contains(b.has(), "gateway") {
		t.Errorf("the difference is %s", b.has())
	}
	c.mu.Lock()
	got := c.latest["shop/next"]
	c.mu.Unlock()
	if len(got.Addresses) != addresses || len(got.Unassigned) != 1-addresses ||
		addresses > 0 && got.Addresses[0].String() != "192.0.2.3" {
		t.Errorf("the verdict on a new Service is %+v", got)
	}
	allowed.Store(true)
	eventually(t, "the balancer has the Gateway", func() bool {
		return strings.Contains(b.has(), "name: shop:edge:tcp-25:gateway") && c.Health().Synced
	})
}

// certificatePair returns a Secret that has a new certificate.
func certificatePair(t *testing.T) *corev1.Secret {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "certificate"), filepath.Join(dir, "key")
	testcert.NewAuthority(t).Write(t, pkix.Name{}, time.Hour, certificate, key)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{}}
	for name, path := range map[string]string{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[name] = text
	}
	return secret
}

// TestCertificateIsRenewed: the file of a listener's certificate follows the Secret, though no service changes.
func TestCertificateIsRenewed(t *testing.T) {
	first, second, dir := certificatePair(t), certificatePair(t), t.TempDir()
	client, b := fake.NewClientset(first), &fakeBalancer{}
	client.Resources = []*metav1.APIResourceList{{GroupVersion: v1.GroupVersion.String(),
		APIResources: []metav1.APIResource{{Name: string(watch.GatewayClasses)}, {Name: string(watch.Gateways)}}}}
	made := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Spec: v1.GatewaySpec{GatewayClassName: "jeoul",
			Listeners: []v1.Listener{{Name: "shop", Protocol: v1.HTTPSProtocolType, Port: 443,
				TLS: &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "edge"}}}}}}}
	made.Status.Addresses = []v1.GatewayStatusAddress{{Value: "192.0.2.2"}}
	gateways := gatewayfake.NewSimpleClientset(&v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "jeoul"},
		Spec: v1.GatewayClassSpec{ControllerName: model.DefaultClass}})
	if _, err := gateways.GatewayV1().Gateways("shop").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	startedWith(t, client, b, func(c *Controller) {
		c.opt.Gateways = &gateway.Settings{Controller: model.DefaultClass, Certificates: dir}
		if err := c.opt.Watcher.FollowGateways(client, gateways, true); err != nil {
			t.Fatal(err)
		}
	})
	has := func(secret *corev1.Secret) func() bool {
		return func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, "shop_edge.pem"))
			return bytes.Contains(text, secret.Data[corev1.TLSCertKey])
		}
	}
	eventually(t, "the certificate is there", has(first))
	if _, err := client.CoreV1().Secrets("shop").Update(t.Context(), second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renewed one is there", has(second))
}

// TestCertificates: files are written for the owner and its group, replaced where their contents change, and only then.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a_b.pem")
	write := func(text string) os.FileInfo {
		t.Helper()
		if err := writeCertificates(dir, map[string][]byte{"a_b.pem": []byte(text)}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := write("one")
	if again := write("one"); !os.SameFile(first, again) || first.Mode() != 0o640 {
		t.Errorf("the file was replaced by the same contents, or has mode %v", first.Mode())
	}
	write("two")
	if text, _ := os.ReadFile(path); string(text) != "two" {
		t.Errorf("the file has %q", text)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
