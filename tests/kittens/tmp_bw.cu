#include <random>
#include "harness.h"
#include "kernels/attention/attention_backward_launch.cuh"
using kittens::testing::buffer;
using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;
namespace {
using vec = std::vector<double>;
struct problem { int B,Sq,Sk,H,Hk,D; int left,right; bool dyn; };
std::vector<bf16> rnd(size_t n, unsigned seed, double s=1) { std::mt19937 g(seed); std::normal_distribution<float> d; std::vector<bf16> v(n); for (auto& x: v) x = kittens::convert<bf16>(float(s*d(g))); return v; }
double f(bf16 x) { return kittens::convert<float>(x); }
void check(problem c) {
  const int off=c.Sk-c.Sq; const float scale=1/std::sqrt(float(c.D));
  auto q=rnd(size_t(c.B)*c.Sq*c.H*c.D,1), k=rnd(size_t(c.B)*c.Sk*c.Hk*c.D,2), v=rnd(size_t(c.B)*c.Sk*c.Hk*c.D,3), d_o=rnd(size_t(c.B)*c.Sq*c.H*c.D,4);
  std::vector<bf16> o(q.size()); std::vector<float> lse(size_t(c.B)*c.H*c.Sq);
  vec dq(q.size()), dk(k.size()), dv(v.size());
  for (int b=0;b<c.B;++b) for (int h=0;h<c.H;++h) { int hk=h/(c.H/c.Hk);
    auto Q=[&](int i,int d){return ((size_t(b)*c.Sq+i)*c.H+h)*c.D+d;}; auto K=[&](int j,int d){return ((size_t(b)*c.Sk+j)*c.Hk+hk)*c.D+d;};
    for (int i=0;i<c.Sq;++i) { int a=std::max(0,i+off-c.left), e=int(std::min<int64_t>(c.Sk,int64_t(i)+off+c.right+1));
      vec s(std::max(0,e-a)); double top=-INFINITY; for (int j=a;j<e;++j){ double x=0; for(int d=0;d<c.D;++d) x+=f(q[Q(i,d)])*f(k[K(j,d)]); s[j-a]=x*scale; top=std::max(top,s[j-a]); }
      double sum=0; for (auto x: s) sum+=std::exp(x-top); const double l= s.empty()?-INFINITY: top+std::log(sum); lse[(size_t(b)*c.H+h)*c.Sq+i]=float(l);
      vec out(c.D); for (int j=a;j<e;++j) for(int d=0;d<c.D;++d) out[d]+=std::exp(s[j-a]-l)*f(v[K(j,d)]);
      double delta=0; for(int d=0;d<c.D;++d){ o[Q(i,d)]=kittens::convert<bf16>(float(out[d])); delta+=f(o[Q(i,d)])*f(d_o[Q(i,d)]);}
      for (int j=a;j<e;++j){ double p=std::exp(s[j-a]-l), dp=0; for(int d=0;d<c.D;++d) dp+=f(d_o[Q(i,d)])*f(v[K(j,d)]); double ds=p*(dp-delta)*scale;
        for(int d=0;d<c.D;++d){ dq[Q(i,d)]+=ds*f(k[K(j,d)]); dk[K(j,d)]+=ds*f(q[Q(i,d)]); dv[K(j,d)]+=p*f(d_o[Q(i,d)]);} } } }
  buffer<bf16> Q(q),K(k),V(v),O(o),DO(d_o),DQ(q.size()),DK(k.size()),DV(v.size()); buffer<float> L(lse);
  const int rows = c.D<=64?128:64; const size_t nb=(c.Sq+rows-1)/rows;
  buffer<float> rb(size_t(c.B)*c.H*nb*rows*2), fac(size_t(c.B)*c.H*nb*rows); buffer<int> parts(std::vector<int>(size_t(c.B)*c.H*nb*2*4096, 77)); buffer<float> bounds(std::vector<float>(size_t(c.B)*c.Hk*2)); buffer<int> counter(std::vector<int>{0});
  const int64_t D=c.D; attention_strides qs{int64_t(c.Sq)*c.H*D,c.H*D,D}, ks{int64_t(c.Sk)*c.Hk*D,c.Hk*D,D};
  attention_backward_params p{Q.data(),K.data(),V.data(),O.data(),DO.data(),DQ.data(),DK.data(),DV.data(),L.data(),nullptr,rb.data(),parts.data(),bounds.data(),fac.data(),c.dyn?counter.data():nullptr,c.B,c.Sq,c.Sk,c.H,c.Hk,D,D,qs,ks,ks,qs,qs,scale,0,c.left,c.right,dtype::bfloat16};
  if (D<=64) launch_attention_backward<attention_backward_config<bf16,64,false>>(p,nullptr); else launch_attention_backward<attention_backward_config<bf16,128,false>>(p,nullptr);
  auto err=[&](const char* n,const vec& want,const std::vector<bf16>& got){ double num=0,den=0,worst=0; for(size_t i=0;i<want.size();++i){ double e=f(got[i])-want[i]; if(std::isnan(e)) e=1e9; num+=e*e; den+=want[i]*want[i]; worst=std::max(worst,std::abs(e)); } printf("   %s rel rms %.5f worst %.4f\n",n,std::sqrt(num/den),worst); CHECK_EQUAL(std::sqrt(num/den)<0.01,true); };
  printf(" B%d Sq%d Sk%d H%d Hk%d D%d l%d r%d\n",c.B,c.Sq,c.Sk,c.H,c.Hk,c.D,c.left,c.right);
  err("dq",dq,DQ.get()); err("dk",dk,DK.get()); err("dv",dv,DV.get());
}
constexpr int A=1<<20;
TEST(full128) { check({1,200,300,2,1,128,A,A,false}); }
TEST(causal128) { check({1,260,260,2,2,128,A,0,true}); }
TEST(full64) { check({1,300,200,2,2,64,A,A,false}); }
TEST(causal64) { check({2,300,300,2,1,64,A,0,true}); }
TEST(window64) { check({1,400,400,1,1,64,70,10,true}); }
}
